; SPDX-License-Identifier: Apache-2.0
; The drivers of keyboard, mouse and display, and the calls that use them. The keyboard's interrupt
; takes keys into a ring; the mouse's registers say where it is; the display is memory of the device,
; a cell of a byte for each character.

keyboard_open:
    mov   rax, [keyboard_base]
    test  rax, rax
    jz    keyboard_none
    mov   byte ptr [rax+1], 1           ; each key interrupts
keyboard_none:
    ret

keyboard_interrupt:
    mov   rsi, [keyboard_base]
keyboard_next:
    movzx ecx, byte ptr [rsi]           ; takes the key
    test  ecx, ecx
    jz    keyboard_empty
    mov   rax, [keys_in]
    mov   rdx, rax
    sub   rdx, [keys_out]
    cmp   rdx, KEY_COUNT
    jae   keyboard_full
    and   eax, KEY_COUNT-1
    mov   [keys+rax], cl
    inc   qword ptr [keys_in]
    jmp   keyboard_next
keyboard_full:
    inc   qword ptr [keys_dropped]
    jmp   keyboard_next
keyboard_empty:
    mov   edi, keys
    jmp   wake

call_read:                              ; (pointer, size): keys; waits for the first
    mov   rax, ENODEV
    cmp   qword ptr [keyboard_base], 0
    je    call_read_over
    mov   rdi, [rbp+F_RDI]
    mov   rsi, [rbp+F_RSI]
    mov   edx, MAY_WRITE
    call  user_range
    test  rax, rax
    jnz   call_read_over
    cmp   qword ptr [rbp+F_RSI], 0
    je    call_read_over
call_read_wait:
    mov   rax, [keys_in]
    cmp   rax, [keys_out]
    jne   call_read_take
    mov   edi, keys
    call  sleep_on
    jmp   call_read_wait
call_read_take:
    mov   rdi, [rbp+F_RDI]
    xor   ecx, ecx
call_read_next:
    mov   rax, [keys_out]
    cmp   rax, [keys_in]
    je    call_read_taken
    cmp   rcx, [rbp+F_RSI]
    jae   call_read_taken
    and   eax, KEY_COUNT-1
    mov   dl, [keys+rax]
    mov   [rdi+rcx], dl
    inc   rcx
    inc   qword ptr [keys_out]
    jmp   call_read_next
call_read_taken:
    mov   rax, rcx
call_read_over:
    ret

call_write:                             ; (pointer, size): at most 4,096 bytes of it
    mov   rax, ENODEV
    cmp   qword ptr [display_base], 0
    je    call_write_over
    mov   rdi, [rbp+F_RDI]
    mov   rsi, [rbp+F_RSI]
    mov   edx, MAY_READ
    call  user_range
    test  rax, rax
    jnz   call_write_over
    mov   r12, [rbp+F_RDI]
    mov   r13, [rbp+F_RSI]
    cmp   r13, 4096
    jbe   call_write_fits
    mov   r13d, 4096
call_write_fits:
    mov   r14, r13
call_write_next:
    test  r13, r13
    jz    call_write_done
    mov   al, [r12]
    call  put_character
    inc   r12
    dec   r13
    jmp   call_write_next
call_write_done:
    mov   rax, r14
call_write_over:
    ret

; Shows the character AL at the cursor; 10 begins a new line.
put_character:
    cmp   al, 10
    je    new_line
    mov   rcx, [cursor_row]
    imul  rcx, [display_columns]
    add   rcx, [cursor_column]
    add   rcx, [display_base]
    mov   [rcx], al
    inc   qword ptr [cursor_column]
    mov   rcx, [cursor_column]
    cmp   rcx, [display_columns]
    jb    put_character_over
new_line:
    mov   qword ptr [cursor_column], 0
    mov   rcx, [cursor_row]
    inc   rcx
    cmp   rcx, [display_rows]
    jae   scroll
    mov   [cursor_row], rcx
put_character_over:
    ret

; All rows move up by one, and the last is empty.
scroll:
    mov   rdi, [display_base]
    mov   rsi, rdi
    add   rsi, [display_columns]
    mov   rcx, [display_rows]
    dec   rcx
    imul  rcx, [display_columns]
    call  copy_bytes
    xor   eax, eax
    mov   rcx, [display_columns]
    rep stosb
    ret

call_mouse:                             ; (): x, y and buttons, as they are now
    mov   rax, ENODEV
    mov   rdx, [mouse_base]
    test  rdx, rdx
    jz    call_mouse_over
    mov   eax, [rdx]                    ; x and y
    movzx edx, byte ptr [rdx+4]         ; buttons
    shl   rdx, 32
    or    rax, rdx
call_mouse_over:
    ret
