; SPDX-License-Identifier: Apache-2.0
; Which process runs: round robin over the table of processes, sleeping and waking by channels, and
; the account of cycles. A channel is any address that sleeper and waker agree on.
; Routines keep RBX, RBP and R12 to R15, and may change the other registers.

; Runs the next process that is ready, or the idle process. It returns when this process is chosen
; again, on its own kernel stack.
schedule:
    push  rbx
    push  rbp
    push  r12
    push  r13
    push  r14
    push  r15
    mov   byte ptr [need_resched], 0
    mov   rbx, [current]
    mov   r12, rbx
    mov   ecx, PROCESS_COUNT            ; all of them, its own last
schedule_next:
    add   r12, PROCESS_SIZE
    cmp   r12, PROCESSES + PROCESS_COUNT*PROCESS_SIZE
    jb    schedule_look
    mov   r12, PROCESSES + PROCESS_SIZE ; behind the idle process, which is the first
    dec   ecx
schedule_look:
    cmp   qword ptr [r12+P_STATE], READY
    je    schedule_found
    dec   ecx
    jg    schedule_next
    mov   r12, PROCESSES
schedule_found:
    cmp   r12, rbx
    je    schedule_same
    call  account_kernel
    inc   qword ptr [r12+P_SWITCHES]
    cmp   rbx, PROCESSES
    jne   schedule_switch
    call  tick_start
schedule_switch:
    sub   rsp, XMM_BYTES                ; only here: the kernel itself does not use them
    movups [rsp+0], xmm0
    movups [rsp+16], xmm1
    movups [rsp+32], xmm2
    movups [rsp+48], xmm3
    movups [rsp+64], xmm4
    movups [rsp+80], xmm5
    movups [rsp+96], xmm6
    movups [rsp+112], xmm7
    movups [rsp+128], xmm8
    movups [rsp+144], xmm9
    movups [rsp+160], xmm10
    movups [rsp+176], xmm11
    movups [rsp+192], xmm12
    movups [rsp+208], xmm13
    movups [rsp+224], xmm14
    movups [rsp+240], xmm15
    mov   [rbx+P_RSP], rsp
    mov   [current], r12
    mov   rsp, [r12+P_RSP]
    movups xmm0, [rsp+0]
    movups xmm1, [rsp+16]
    movups xmm2, [rsp+32]
    movups xmm3, [rsp+48]
    movups xmm4, [rsp+64]
    movups xmm5, [rsp+80]
    movups xmm6, [rsp+96]
    movups xmm7, [rsp+112]
    movups xmm8, [rsp+128]
    movups xmm9, [rsp+144]
    movups xmm10, [rsp+160]
    movups xmm11, [rsp+176]
    movups xmm12, [rsp+192]
    movups xmm13, [rsp+208]
    movups xmm14, [rsp+224]
    movups xmm15, [rsp+240]
    add   rsp, XMM_BYTES
    mov   rax, [r12+P_ROOT]
    mov   cr3, rax
    mov   rax, [r12+P_STACK_TOP]
    mov   [kernel_stack], rax
    mov   rdx, rax
    shr   rdx, 32
    mov   ecx, 0x175                    ; the stack of interrupts that come from ring 3
    wrmsr
schedule_same:
    pop   r15
    pop   r14
    pop   r13
    pop   r12
    pop   rbp
    pop   rbx
    ret

; Blocks the current process until somebody wakes the channel RDI.
sleep_on:
    mov   rax, [current]
    mov   [rax+P_CHANNEL], rdi
    mov   qword ptr [rax+P_STATE], BLOCKED
    jmp   schedule

; Makes all processes ready that sleep on the channel RDI. They run when their turn comes.
wake:
    mov   rax, PROCESSES + PROCESS_SIZE
wake_next:
    cmp   qword ptr [rax+P_STATE], BLOCKED
    jne   wake_not
    cmp   [rax+P_CHANNEL], rdi
    jne   wake_not
    mov   qword ptr [rax+P_STATE], READY
wake_not:
    add   rax, PROCESS_SIZE
    cmp   rax, PROCESSES + PROCESS_COUNT*PROCESS_SIZE
    jb    wake_next
    ret

; In long work of the kernel: takes the interrupts that wait, and lets others run if it is time.
preemption_point:
    sti
    nop
    nop
    cli
    cmp   byte ptr [need_resched], 0
    jne   schedule
    ret

; The process of RBX has ended, and its state says how.
end_of_process:
    call  close_all_sockets
    call  schedule                      ; does not return
    jmp   panic

; ---- the account: all cycles since the last stamp belong to the current process
; Python reads the account wherever a run stops, and knows the two places where RCX is to be added.

account_outside:                        ; they passed in ring 3, or idle
    rdtsc
    shl   rdx, 32
    or    rax, rdx
    mov   rcx, rax
    mov   rdx, [current]
    sub   rcx, [last_stamp]
    mov   [last_stamp], rax
account_outside_adds:
    add   [rdx+P_USER], rcx
    ret

account_kernel:
    rdtsc
    shl   rdx, 32
    or    rax, rdx
    mov   rcx, rax
    mov   rdx, [current]
    sub   rcx, [last_stamp]
    mov   [last_stamp], rax
account_kernel_adds:
    add   [rdx+P_SYSTEM], rcx
    ret

; ---- the timer, which ticks while a process runs or sleeps for a time

tick_open:
    mov   rax, [timer_base]
    mov   rcx, [tick_ns]
    mov   [rax], rcx
    ret

tick_start:
    cmp   byte ptr [ticking], 0
    jne   tick_goes_on
    mov   byte ptr [ticking], 1
    mov   rax, [timer_base]
    mov   qword ptr [rax+8], 2          ; again and again
tick_goes_on:
    ret

; The idle process stops the timer, unless a process sleeps for a time.
tick_rest:
    mov   rax, PROCESSES + PROCESS_SIZE
tick_rest_next:
    cmp   qword ptr [rax+P_STATE], BLOCKED
    jne   tick_rest_not
    cmp   qword ptr [rax+P_CHANNEL], ticks
    je    tick_goes_on
tick_rest_not:
    add   rax, PROCESS_SIZE
    cmp   rax, PROCESSES + PROCESS_COUNT*PROCESS_SIZE
    jb    tick_rest_next
    cmp   byte ptr [ticking], 0
    je    tick_goes_on
    mov   byte ptr [ticking], 0
    mov   rax, [timer_base]
    mov   qword ptr [rax+8], 0
    ret

; The time slice is over, and perhaps somebody's sleep.
tick_interrupt:
    inc   qword ptr [ticks]
    mov   byte ptr [need_resched], 1
    mov   rax, [poll_budget]
    mov   [budget_left], rax
    rdtsc
    shl   rdx, 32
    or    rax, rdx
    mov   rcx, PROCESSES + PROCESS_SIZE
tick_next:
    cmp   qword ptr [rcx+P_STATE], BLOCKED
    jne   tick_not
    cmp   qword ptr [rcx+P_CHANNEL], ticks
    jne   tick_not
    cmp   [rcx+P_WAKE_AT], rax
    ja    tick_not
    mov   qword ptr [rcx+P_STATE], READY
tick_not:
    add   rcx, PROCESS_SIZE
    cmp   rcx, PROCESSES + PROCESS_COUNT*PROCESS_SIZE
    jb    tick_next
    ret

; Python makes a process ready while the machine stands, and sends this interrupt, which ends HLT:
; behind any interrupt the idle process looks who is ready.
resched_interrupt:
    ret

unexpected_interrupt:
    inc   qword ptr [unexpected]
    ret
