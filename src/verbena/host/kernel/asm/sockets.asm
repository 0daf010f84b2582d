; SPDX-License-Identifier: Apache-2.0
; Datagrams between processes by ports. A frame has Ethernet addresses 02:00 and the four bytes of
; a host's number, the EtherType 0x88B5 (IEEE 802, local experiments), and then the UDP header of
; RFC 768 without a checksum: source port, destination port, length. A socket keeps the buffers of
; its datagrams in a list that has a limit; what comes beyond it is dropped and counted.

; The socket of the current process with the number RDI, in RAX; or 0.
socket_of:
    xor   eax, eax
    cmp   rdi, SOCKET_COUNT
    jae   socket_of_none
    shl   rdi, 6
    cmp   [SOCKETS+rdi+S_OWNER], rbx
    jne   socket_of_none
    lea   rax, [rdi+SOCKETS]
socket_of_none:
    ret

; The socket with the port RCX, in RAX; or 0.
socket_by_port:
    mov   eax, SOCKETS
socket_by_port_next:
    cmp   qword ptr [rax+S_OWNER], 0
    je    socket_by_port_not
    cmp   [rax+S_PORT], rcx
    je    socket_by_port_found
socket_by_port_not:
    add   rax, SOCKET_SIZE
    cmp   rax, SOCKETS + SOCKET_COUNT*SOCKET_SIZE
    jb    socket_by_port_next
    xor   eax, eax
socket_by_port_found:
    ret

call_bind:                              ; (port; 0: the kernel chooses): the socket's number
    mov   rax, EINVAL
    mov   rcx, [rbp+F_RDI]
    cmp   rcx, 65535
    ja    call_bind_over
    mov   r12d, SOCKETS
    xor   r13d, r13d
call_bind_next:
    cmp   qword ptr [r12+S_OWNER], 0
    je    call_bind_free
    add   r12, SOCKET_SIZE
    inc   r13
    cmp   r13, SOCKET_COUNT
    jb    call_bind_next
    mov   rax, ENOBUFS
    ret
call_bind_free:
    test  rcx, rcx
    jnz   call_bind_port
    lea   rcx, [r13+49152]              ; the first port that nobody registers (RFC 6335)
call_bind_port:
    call  socket_by_port
    test  rax, rax
    mov   rax, EADDRINUSE
    jnz   call_bind_over
    mov   [r12+S_OWNER], rbx
    mov   [r12+S_PORT], rcx
    mov   qword ptr [r12+S_FIRST], 0
    mov   qword ptr [r12+S_LAST], 0
    mov   qword ptr [r12+S_COUNT], 0
    mov   rax, r13
call_bind_over:
    ret

call_close:                             ; (socket)
    mov   rdi, [rbp+F_RDI]
    call  socket_of
    mov   r12, rax
    test  rax, rax
    mov   rax, EBADF
    jz    call_close_over
    call  socket_close
    xor   eax, eax
call_close_over:
    ret

; Frees the socket R12 and what it holds.
socket_close:
    mov   rdi, [r12+S_FIRST]
socket_close_next:
    test  rdi, rdi
    jz    socket_close_empty
    mov   rsi, [rdi+B_NEXT]
    call  pool_put
    mov   rdi, rsi
    jmp   socket_close_next
socket_close_empty:
    mov   qword ptr [r12+S_FIRST], 0
    mov   qword ptr [r12+S_COUNT], 0
    mov   qword ptr [r12+S_OWNER], 0
    ret

; Of the process RBX, which ends.
close_all_sockets:
    mov   r12d, SOCKETS
close_all_next:
    cmp   [r12+S_OWNER], rbx
    jne   close_all_not
    call  socket_close
close_all_not:
    add   r12, SOCKET_SIZE
    cmp   r12, SOCKETS + SOCKET_COUNT*SOCKET_SIZE
    jb    close_all_next
    ret

call_send_to:                           ; (socket, pointer, size, host, port)
    mov   rdi, [rbp+F_RDI]
    call  socket_of
    mov   r12, rax
    test  rax, rax
    mov   rax, EBADF
    jz    call_send_over
    mov   rax, EMSGSIZE
    mov   r13, [rbp+F_RDX]
    cmp   r13, DATAGRAM_MOST
    ja    call_send_over
    mov   rax, EINVAL
    mov   rcx, [rbp+F_R8]
    dec   rcx
    cmp   rcx, 65535
    jae   call_send_over
    mov   r15, [rbp+F_R10]
    test  r15, r15
    jz    call_send_over
    mov   rdx, r15
    shr   rdx, 32
    jnz   call_send_over
    cmp   r15, [own_host]
    je    call_send_reachable
    mov   rax, ENETUNREACH
    cmp   qword ptr [adapter_base], 0
    je    call_send_over
call_send_reachable:
    mov   rdi, [rbp+F_RSI]
    mov   rsi, r13
    mov   edx, MAY_READ
    call  user_range
    test  rax, rax
    jnz   call_send_over
    call  pool_get
    mov   r14, rax
    test  rax, rax
    mov   rax, ENOBUFS
    jz    call_send_over
    call  make_frame
    inc   qword ptr [datagrams_sent]
    cmp   r15, [own_host]
    je    call_send_home
    call  send_frame
    jmp   call_send_done
call_send_home:
    mov   rdi, r14
    call  deliver
    test  rax, rax
    jnz   call_send_done
    call  pool_put                      ; lost, as a datagram may be, and counted
call_send_done:
    mov   rax, r13
call_send_over:
    ret

; The frame of call_send_to: R13 bytes of the process, from the socket R12, to the host R15, into
; the buffer R14.
make_frame:
    lea   rdi, [r14+B_FRAME]
    mov   word ptr [rdi], 0x0002        ; destination 02:00:host
    mov   eax, r15d
    bswap eax
    mov   [rdi+2], eax
    mov   word ptr [rdi+6], 0x0002      ; source
    mov   eax, [own_host]
    bswap eax
    mov   [rdi+8], eax
    mov   word ptr [rdi+12], 0xb588
    mov   ax, [r12+S_PORT]
    rol   ax, 8
    mov   [rdi+14], ax
    mov   ax, [rbp+F_R8]
    rol   ax, 8
    mov   [rdi+16], ax
    lea   rax, [r13+8]
    rol   ax, 8
    mov   [rdi+18], ax
    mov   word ptr [rdi+20], 0          ; no checksum
    lea   rax, [r13+HEADERS]
    mov   [r14+B_LENGTH], rax
    add   rdi, HEADERS
    mov   rsi, [rbp+F_RSI]
    mov   rcx, r13
    jmp   copy_bytes

; Puts the frame of the buffer RDI into the list of its socket, and wakes who receives. RAX: 1, and
; the socket has the buffer; or 0, the frame is counted as lost, and RDI is as it was.
deliver:
    mov   rdx, [rdi+B_LENGTH]
    cmp   rdx, HEADERS
    jb    deliver_not_ours
    cmp   word ptr [rdi+B_FRAME+12], 0xb588
    jne   deliver_not_ours
    cmp   word ptr [rdi+B_FRAME], 0x0002
    jne   deliver_not_ours
    mov   eax, [rdi+B_FRAME+2]
    bswap eax
    cmp   eax, [own_host]
    jne   deliver_not_ours
    movzx ecx, word ptr [rdi+B_FRAME+18]
    rol   cx, 8
    cmp   ecx, 8
    jb    deliver_not_ours
    add   ecx, HEADERS-8
    cmp   ecx, edx
    ja    deliver_not_ours
    movzx ecx, word ptr [rdi+B_FRAME+16]
    rol   cx, 8
    call  socket_by_port
    test  rax, rax
    jz    deliver_no_port
    mov   rcx, [rax+S_COUNT]
    cmp   rcx, [socket_limit]
    jae   deliver_full
    mov   qword ptr [rdi+B_NEXT], 0
    inc   qword ptr [rax+S_COUNT]
    inc   qword ptr [datagrams_received]
    mov   rdx, [rax+S_LAST]
    mov   [rax+S_LAST], rdi
    test  rcx, rcx
    jz    deliver_first
    mov   [rdx+B_NEXT], rdi
    jmp   deliver_wake
deliver_first:
    mov   [rax+S_FIRST], rdi
deliver_wake:
    mov   rdi, rax
    call  wake
    mov   eax, 1
    ret
deliver_full:
    inc   qword ptr [datagrams_dropped]
    mov   rdx, [rax+S_OWNER]
    inc   qword ptr [rdx+P_DROPPED]
    xor   eax, eax
    ret
deliver_no_port:
    inc   qword ptr [datagrams_without_port]
    xor   eax, eax
    ret
deliver_not_ours:
    inc   qword ptr [frames_ignored]
    xor   eax, eax
    ret

call_receive_from:                      ; (socket, pointer, size, sender or 0, 1: do not wait)
    mov   rdi, [rbp+F_RDI]
    call  socket_of
    mov   r12, rax
    test  rax, rax
    mov   rax, EBADF
    jz    call_receive_over
    mov   rdi, [rbp+F_RSI]
    mov   rsi, [rbp+F_RDX]
    mov   edx, MAY_WRITE
    call  user_range
    test  rax, rax
    jnz   call_receive_over
    mov   rdi, [rbp+F_R10]
    test  rdi, rdi
    jz    call_receive_wait
    mov   esi, 16
    mov   edx, MAY_WRITE
    call  user_range
    test  rax, rax
    jnz   call_receive_over
call_receive_wait:
    mov   r14, [r12+S_FIRST]
    test  r14, r14
    jnz   call_receive_take
    call  poll_freely                   ; perhaps it is in the adapter's ring
    mov   r14, [r12+S_FIRST]
    test  r14, r14
    jnz   call_receive_take
    mov   rax, EAGAIN
    test  byte ptr [rbp+F_R8], 1
    jnz   call_receive_over
    mov   rdi, r12
    call  sleep_on
    jmp   call_receive_wait
call_receive_take:
    mov   rax, [r14+B_NEXT]
    mov   [r12+S_FIRST], rax
    dec   qword ptr [r12+S_COUNT]
    movzx r13d, word ptr [r14+B_FRAME+18]
    rol   r13w, 8
    sub   r13d, 8
    cmp   r13, [rbp+F_RDX]
    jbe   call_receive_fits
    mov   r13, [rbp+F_RDX]              ; the rest is lost, as of any datagram
call_receive_fits:
    lea   rsi, [r14+B_FRAME+HEADERS]
    mov   rdi, [rbp+F_RSI]
    mov   rcx, r13
    call  copy_bytes
    mov   rdi, [rbp+F_R10]
    test  rdi, rdi
    jz    call_receive_free
    mov   eax, [r14+B_FRAME+8]
    bswap eax
    mov   [rdi], rax
    movzx eax, word ptr [r14+B_FRAME+14]
    rol   ax, 8
    mov   [rdi+8], rax
call_receive_free:
    mov   rdi, r14
    call  pool_put
    mov   rax, r13
call_receive_over:
    ret
