; SPDX-License-Identifier: Apache-2.0
; The memory of processes as the kernel sees it: which addresses a process may hand to a system
; call, and copying. The kernel looks every page up before it touches it, so that no address that a
; process gives can fault in ring 0.

; May the current process use the RSI bytes at RDI? RDX has the bits that each table entry needs:
; MAY_READ or MAY_WRITE. RAX: 0 or EFAULT; R8: the physical address of the first byte; R9: 0 if the
; bytes are one piece of physical memory.
user_range:
    xor   r8d, r8d
    xor   r9d, r9d
    test  rsi, rsi
    jz    user_range_allowed
    lea   rax, [rdi+rsi]
    cmp   rax, rdi
    jb    user_range_refused            ; the sum has overflowed
    cmp   rdi, USER_BASE
    jb    user_range_refused
    cmp   rax, USER_BASE + USER_SPAN
    ja    user_range_refused
    add   rsi, rdi                      ; the end
    mov   r10, rdi
    and   r10, -4096                    ; the page
user_range_page:
    mov   r11, cr3
    mov   ecx, 39
user_range_level:
    mov   rax, r10
    shr   rax, cl
    and   eax, 511
    mov   r11, [r11+rax*8]
    mov   rax, r11
    and   rax, rdx
    cmp   rax, rdx
    jne   user_range_refused
    and   r11, [table_address]
    sub   ecx, 9
    cmp   ecx, 12
    jge   user_range_level
    test  r8, r8
    jnz   user_range_further
    mov   r8, rdi                       ; of the first page
    and   r8d, 4095
    or    r8, r11
    mov   [expected_page], r11
user_range_further:
    cmp   r11, [expected_page]
    je    user_range_next
    inc   r9
user_range_next:
    add   qword ptr [expected_page], 4096
    add   r10, 4096
    cmp   r10, rsi
    jb    user_range_page
user_range_allowed:
    xor   eax, eax
    ret
user_range_refused:
    mov   rax, EFAULT
    ret

; Copies RCX bytes from RSI to RDI, by words of eight.
copy_bytes:
    mov   rax, rcx
    shr   rcx, 3
    rep movsq
    mov   rcx, rax
    and   ecx, 7
    rep movsb
    ret
