; SPDX-License-Identifier: Apache-2.0
; The driver of the disk: a queue of requests, one for each process that waits, of which the first
; is at the disk. By DMA the disk moves the bytes and its interrupt ends the request; by programmed
; I/O the interrupt wakes the process, which loads each word from the disk's buffer.
; verbena.host.disk describes the registers.

disk_open:
    mov   rax, [disk_base]
    test  rax, rax
    jz    disk_none
    mov   qword ptr [rax+0x28], 1       ; ENABLE: interrupts
disk_none:
    ret

call_disk_read:                         ; (block, pointer, blocks)
    mov   r12, [disk_read_command]
    mov   edx, MAY_WRITE
    jmp   disk_request
call_disk_write:                        ; (block, pointer, blocks): always by DMA
    mov   r12d, DISK_WRITE_DMA
    mov   edx, MAY_READ
disk_request:
    mov   rax, ENODEV
    cmp   qword ptr [disk_base], 0
    je    disk_over
    mov   rax, EINVAL
    mov   r13, [rbp+F_RDX]
    test  r13, r13
    jz    disk_over
    cmp   r13, [disk_most]
    ja    disk_over
    mov   rsi, r13
    imul  rsi, [disk_block]
    mov   rdi, [rbp+F_RSI]
    call  user_range
    test  rax, rax
    jnz   disk_over
    mov   rax, EINVAL
    test  r9, r9                        ; one command moves one piece of memory
    jnz   disk_over
    mov   rax, [rbp+F_RDI]
    mov   [rbx+P_DISK_BLOCK], rax
    mov   [rbx+P_DISK_COUNT], r13
    mov   [rbx+P_DISK_ADDRESS], r8
    mov   [rbx+P_DISK_COMMAND], r12
    mov   qword ptr [rbx+P_DISK_STATE], DISK_QUEUED
    mov   qword ptr [rbx+P_DISK_NEXT], 0
    mov   rax, [disk_last]
    mov   [disk_last], rbx
    cmp   qword ptr [disk_first], 0
    jne   disk_behind
    mov   [disk_first], rbx
    mov   rdi, rbx
    call  disk_begin
    jmp   disk_wait
disk_behind:
    mov   [rax+P_DISK_NEXT], rbx
disk_wait:
    mov   rdi, rbx
    call  sleep_on
    mov   rax, [rbx+P_DISK_STATE]
    cmp   rax, DISK_QUEUED
    je    disk_wait
    cmp   rax, DISK_DATA_READY
    je    disk_copy_words
    cmp   rax, DISK_FAILED
    mov   rax, EIO
    je    disk_over
    mov   rax, r13
disk_over:
    ret

; Programmed I/O: each load is a round trip over the link, for which the processor waits.
disk_copy_words:
    mov   r12, [rbp+F_RSI]
    mov   r14, [disk_base]
    add   r14, 0x1000
    mov   r15, r13
disk_copy_block:
    mov   rcx, [disk_block]
    shr   rcx, 3
disk_copy_word:
    mov   rax, [r14]
    mov   [r12], rax
    add   r14, 8
    add   r12, 8
    dec   rcx
    jnz   disk_copy_word
    call  preemption_point
    dec   r15
    jnz   disk_copy_block
    call  disk_next
    mov   rax, r13
    ret

; Gives the disk the request of the process RDI.
disk_begin:
    mov   rdx, [disk_base]
    mov   rax, [rdi+P_DISK_BLOCK]
    mov   [rdx+0x08], rax
    mov   rax, [rdi+P_DISK_COUNT]
    mov   [rdx+0x10], rax
    mov   rax, [rdi+P_DISK_ADDRESS]
    mov   [rdx+0x18], rax
    mov   rax, [rdi+P_DISK_COMMAND]
    mov   [rdx], rax
    ret

; Takes the first request out of the queue, and begins the next.
disk_next:
    mov   rdi, [disk_first]
    mov   rdi, [rdi+P_DISK_NEXT]
    mov   [disk_first], rdi
    test  rdi, rdi
    jnz   disk_begin
    mov   [disk_last], rdi
    ret

disk_interrupt:
    mov   r12, [disk_first]
    mov   rax, [disk_base]
    mov   rax, [rax+0x20]               ; STATUS; the load clears "done" and "failed"
    test  r12, r12
    jz    disk_interrupt_over
    cmp   rax, DISK_DATA_READY
    jb    disk_interrupt_over           ; idle or busy: nothing has ended
    mov   [r12+P_DISK_STATE], rax
    je    disk_interrupt_wake           ; of programmed I/O; the process goes on with it
    call  disk_next
disk_interrupt_wake:
    mov   rdi, r12
    jmp   wake
disk_interrupt_over:
    ret
