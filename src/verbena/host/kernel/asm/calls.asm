; SPDX-License-Identifier: Apache-2.0
; The table of system calls, and the calls of processes and time. A call finds its process in RBX
; and its arguments in the trap frame at RBP; RAX is its result, or minus an error's number. The
; table's order is that of verbena.host.kernel.numbers.

call_exit:                              ; (status)
    mov   rax, [rbp+F_RDI]
    mov   [rbx+P_EXIT], rax
    mov   qword ptr [rbx+P_STATE], EXITED
    jmp   end_of_process

call_yield:                             ; ()
    call  schedule
    xor   eax, eax
    ret

call_getpid:                    ; ()
    mov   rax, [rbx+P_PID]
    ret

call_time:                              ; (): microseconds since the boot
    rdtsc
    shl   rdx, 32
    or    rax, rdx
    xor   edx, edx
    div   qword ptr [cycles_per_us]
    ret

call_sleep:                             ; (microseconds)
    mov   rcx, [rbp+F_RDI]
    mov   rax, EINVAL
    mov   rdx, rcx
    shr   rdx, 32
    jnz   call_sleep_over
    imul  rcx, [cycles_per_us]
    rdtsc
    shl   rdx, 32
    or    rax, rdx
    add   rax, rcx
    mov   [rbx+P_WAKE_AT], rax
    mov   edi, ticks
    call  sleep_on
    xor   eax, eax
call_sleep_over:
    ret
