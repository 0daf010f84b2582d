; SPDX-License-Identifier: Apache-2.0
; The driver of the Ethernet adapter: two rings of descriptors and a pool of buffers. An interrupt
; turns interrupts off and asks for polls, which run behind interrupts, those of the timer as well,
; until the ring is empty and the adapter's interrupts are on again. A budget of frames, which each
; tick renews, limits what polls take from the processes; the idle process, and one that waits for a
; datagram, renew it, too. verbena.host.nic describes the registers.

; A buffer: the next one, the frame's length, and from B_FRAME on the frame.
pool_open:
    mov   edi, POOL
    mov   ecx, POOL_COUNT
pool_open_next:
    call  pool_put
    add   rdi, BUFFER_SIZE
    dec   ecx
    jnz   pool_open_next
    ret

; A free buffer in RAX, or 0.
pool_get:
    mov   rax, [pool_first]
    test  rax, rax
    jz    pool_empty
    mov   rdx, [rax+B_NEXT]
    mov   [pool_first], rdx
    dec   qword ptr [pool_free]
pool_empty:
    ret

; Gives the buffer RDI back.
pool_put:
    mov   rax, [pool_first]
    mov   [rdi+B_NEXT], rax
    mov   [pool_first], rdi
    inc   qword ptr [pool_free]
    ret

adapter_open:
    call  pool_open
    mov   rbx, [adapter_base]
    test  rbx, rbx
    jz    adapter_none
    xor   r12d, r12d
adapter_fill:
    call  pool_get
    mov   [receive_buffers+r12*8], rax
    add   rax, B_FRAME
    mov   rcx, r12
    shl   rcx, 4
    mov   [RECEIVE_RING+rcx], rax
    mov   qword ptr [RECEIVE_RING+rcx+8], 0
    inc   r12
    cmp   r12, RING_COUNT
    jb    adapter_fill
    mov   qword ptr [rbx+0x00], RECEIVE_RING
    mov   qword ptr [rbx+0x08], RING_COUNT
    mov   qword ptr [rbx+0x18], SEND_RING
    mov   qword ptr [rbx+0x20], RING_COUNT
    mov   qword ptr [rbx+0x10], RING_COUNT
    mov   qword ptr [rbx+0x30], 1       ; ENABLE
adapter_none:
    ret

adapter_interrupt:
    mov   byte ptr [poll_pending], 1
    mov   rax, [adapter_base]
    mov   qword ptr [rax+0x30], 0       ; no more interrupts while the kernel polls
    ret

adapter_poll:
    push  rbx
    push  r12
    push  r13
    push  r14
    inc   qword ptr [polls]
    call  reclaim_sent
    mov   r12, [budget_left]
    mov   rbx, [frames_taken]
poll_frame:
    mov   r13, rbx
    and   r13d, RING_COUNT-1
    mov   r14, r13
    shl   r14, 4
    cmp   dword ptr [RECEIVE_RING+r14+12], 0
    je    poll_ring_empty
    test  r12, r12
    jz    poll_budget_spent
    dec   r12
    mov   edi, [RECEIVE_RING+r14+8]
    mov   rax, [receive_buffers+r13*8]
    mov   [rax+B_LENGTH], rdi
    call  pool_get                      ; takes the frame's place in the ring
    test  rax, rax
    jz    poll_no_buffer
    mov   rdi, [receive_buffers+r13*8]
    mov   [receive_buffers+r13*8], rax
    call  deliver
    test  rax, rax
    jnz   poll_next
    call  pool_put                      ; nobody wanted it
    jmp   poll_next
poll_no_buffer:
    inc   qword ptr [frames_without_buffer]
poll_next:
    mov   rax, [receive_buffers+r13*8]
    add   rax, B_FRAME
    mov   [RECEIVE_RING+r14], rax
    mov   qword ptr [RECEIVE_RING+r14+8], 0
    inc   rbx
    jmp   poll_frame
poll_budget_spent:                      ; the rest waits in the ring, interrupts stay off
    inc   qword ptr [budgets_spent]
    call  give_descriptors
    jmp   poll_over
poll_ring_empty:
    call  give_descriptors
    mov   byte ptr [poll_pending], 0
    mov   rax, [adapter_base]
    mov   qword ptr [rax+0x30], 1
poll_over:
    mov   [budget_left], r12
    pop   r14
    pop   r13
    pop   r12
    pop   rbx
    ret

; A poll with a budget of its own, if one is due.
poll_freely:
    cmp   byte ptr [poll_pending], 0
    je    poll_not_due
    mov   rax, [poll_budget]
    mov   [budget_left], rax
    jmp   adapter_poll
poll_not_due:
    ret

; RBX frames have been taken since the boot: the adapter may use their descriptors again.
give_descriptors:
    cmp   rbx, [frames_taken]
    je    give_descriptors_none
    mov   [frames_taken], rbx
    mov   rax, [adapter_base]
    lea   rcx, [rbx+RING_COUNT]
    mov   [rax+0x10], rcx
give_descriptors_none:
    ret

; Frees the buffers of frames that are on the wire, and wakes who waits for room in the ring.
reclaim_sent:
    mov   rsi, [frames_reclaimed]
reclaim_next:
    cmp   rsi, [frames_sent]
    je    reclaim_over
    mov   rcx, rsi
    and   ecx, RING_COUNT-1
    mov   rdx, rcx
    shl   rdx, 4
    cmp   dword ptr [SEND_RING+rdx+12], 0
    je    reclaim_over
    mov   rdi, [send_buffers+rcx*8]
    call  pool_put
    inc   rsi
    jmp   reclaim_next
reclaim_over:
    cmp   rsi, [frames_reclaimed]
    je    reclaim_none
    mov   [frames_reclaimed], rsi
    mov   edi, frames_sent
    jmp   wake
reclaim_none:
    ret

; Sends the frame of the buffer R14; waits for room in the ring.
send_frame:
    mov   rcx, [frames_sent]
    mov   rax, rcx
    sub   rax, [frames_reclaimed]
    cmp   rax, RING_COUNT
    jb    send_frame_now
    mov   edi, frames_sent
    call  sleep_on
    jmp   send_frame
send_frame_now:
    inc   qword ptr [frames_sent]
    and   ecx, RING_COUNT-1
    mov   [send_buffers+rcx*8], r14
    shl   rcx, 4
    lea   rax, [r14+B_FRAME]
    mov   [SEND_RING+rcx], rax
    mov   rax, [r14+B_LENGTH]
    mov   [SEND_RING+rcx+8], rax        ; and a status of 0 behind it
    mov   rax, [frames_sent]
    mov   rcx, [adapter_base]
    mov   [rcx+0x28], rax               ; TX_TAIL, the doorbell
    ret
