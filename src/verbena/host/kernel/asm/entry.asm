; SPDX-License-Identifier: Apache-2.0
; Where the processor enters the kernel and leaves it: boot, system calls, interrupts, exceptions.
; The kernel runs with interrupts off, except where it idles and in preemption_point. On each way in
; all registers go into a trap frame on the kernel stack of the current process (offsets F_*). The
; account is settled as soon as three registers are saved, and when all but four are restored. A
; handler of an interrupt (NAME_interrupt) and a call (call_NAME) may change all registers but RBX,
; RBP and RSP.

boot:
    mov   rsp, STACKS + STACK_SPAN      ; of the idle process
    mov   [kernel_stack], rsp
    lidt  [idt_pointer]
    xor   edx, edx
    mov   ecx, 0xc0000080               ; IA32_EFER: SYSCALL, and NX in page tables
    mov   eax, 0x801
    wrmsr
    mov   ecx, 0xc0000082               ; IA32_LSTAR
    mov   eax, syscall_entry
    wrmsr
    mov   ecx, 0xc0000084               ; IA32_FMASK: SYSCALL clears TF, IF and DF
    mov   eax, 0x700
    wrmsr
    mov   rax, [kernel_root]
    mov   cr3, rax
    mov   eax, 0x80010000               ; CR0: paging, and read-only pages also for ring 0
    mov   cr0, rax
    mov   qword ptr [current], PROCESSES
    call  tick_open
    call  keyboard_open
    call  disk_open
    call  adapter_open
    jmp   idle

; What runs while no process can: the time that passes here is idle time.
idle:
    cli
    cmp   byte ptr [poll_pending], 0
    je    idle_without_frames
    call  account_outside
    call  poll_freely
    call  account_kernel
    sti
    nop
    jmp   idle
idle_without_frames:
    call  schedule
    call  tick_rest
    sti
    hlt                                 ; STI holds interrupts until HLT has begun
    jmp   idle

syscall_entry:
    mov   [user_rsp], rsp
    mov   rsp, [kernel_stack]
    push  0x2b                          ; SS and CS as an interrupt has them
    push  qword ptr [user_rsp]
    push  r11
    push  0x33
    push  rcx
    push  0
    push  0
    push  rax
    push  rbx
    push  rcx
    push  rdx
    call  account_outside
    push  rsi
    push  rdi
    push  rbp
    push  r8
    push  r9
    push  r10
    push  r11
    push  r12
    push  r13
    push  r14
    push  r15
    mov   rbp, rsp                      ; calls find the frame here, and the process in RBX
    mov   rbx, [current]
    mov   rax, [rbp+F_RAX]
    cmp   rax, CALL_COUNT
    jae   no_such_call
    inc   qword ptr [rbx+P_CALLS+rax*8]
    call  [call_table+rax*8]
    jmp   syscall_exit
no_such_call:
    inc   qword ptr [rbx+P_UNKNOWN_CALLS]
    mov   rax, ENOSYS
syscall_exit:
    mov   [rsp+F_RAX], rax
    cmp   byte ptr [need_resched], 0
    je    syscall_scheduled
    call  schedule
syscall_scheduled:
    pop   r15
    pop   r14
    pop   r13
    pop   r12
    pop   r11
    pop   r10
    pop   r9
    pop   r8
    pop   rbp
    pop   rdi
    pop   rsi
    call  account_kernel
    pop   rdx
    pop   rcx
    pop   rbx
    pop   rax
    mov   rcx, [rsp+F_RIP-F_VECTOR]
    mov   r11, [rsp+F_FLAGS-F_VECTOR]
    mov   rsp, [rsp+F_RSP-F_VECTOR]
    sysretq

; The entries of vectors come here, with the vector and an error code on the stack.
interrupt_entry:
    push  rax
    push  rbx
    push  rcx
    push  rdx
    cld
    mov   rbx, [current]
    test  byte ptr [rsp+F_CS-F_RDX], 3
    jnz   came_from_outside
    cmp   rbx, PROCESSES
    je    came_from_outside             ; the idle process is always in ring 0
    call  account_kernel
    jmp   accounted
came_from_outside:
    call  account_outside
accounted:
    push  rsi
    push  rdi
    push  rbp
    push  r8
    push  r9
    push  r10
    push  r11
    push  r12
    push  r13
    push  r14
    push  r15
    mov   rax, [rsp+F_VECTOR]
    inc   qword ptr [interrupt_counts+rax*8]
    cmp   rax, FIRST_VECTOR
    jb    exception
    call  [handlers+rax*8-FIRST_VECTOR*8]
    cmp   byte ptr [poll_pending], 0
    je    interrupt_polled
    call  adapter_poll
interrupt_polled:
    test  byte ptr [rsp+F_CS], 3
    jnz   interrupt_may_switch
    cmp   qword ptr [current], PROCESSES
    jne   interrupt_exit                ; the kernel itself is not preempted
    call  schedule
    jmp   interrupt_exit
interrupt_may_switch:
    cmp   byte ptr [need_resched], 0
    je    interrupt_exit
    call  schedule
interrupt_exit:                         ; a new process begins here, too
    pop   r15
    pop   r14
    pop   r13
    pop   r12
    pop   r11
    pop   r10
    pop   r9
    pop   r8
    pop   rbp
    pop   rdi
    pop   rsi
    call  account_kernel
    pop   rdx
    pop   rcx
    pop   rbx
    pop   rax
    add   rsp, 16                       ; vector and error code
    iretq

; An exception of a process ends it. One of the kernel is an error of the kernel: it stops.
exception:
    mov   rdx, [rsp+F_ERROR]
    mov   rsi, cr2
    mov   rdi, [rsp+F_RIP]
    test  byte ptr [rsp+F_CS], 3
    jz    panic
    mov   [rbx+P_FAULT_VECTOR], rax
    mov   [rbx+P_FAULT_ERROR], rdx
    mov   [rbx+P_FAULT_ADDRESS], rsi
    mov   [rbx+P_FAULT_RIP], rdi
    mov   qword ptr [rbx+P_STATE], FAULTED
    jmp   end_of_process
panic:
    mov   [panic_vector], rax
    mov   [panic_error], rdx
    mov   [panic_address], rsi
    mov   [panic_rip], rdi
    mov   byte ptr [panicked], 1
panic_for_ever:
    cli
    hlt
    jmp   panic_for_ever
