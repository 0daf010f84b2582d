; SPDX-License-Identifier: Apache-2.0
; The interrupt controller of a computer that has one: the boot begins at apic_boot, and the handler
; of every vector is apic_interrupt, which calls the driver's and then writes EOI. Without one the
; boot begins at boot, and drivers' handlers are called directly. verbena.host.local_apics and
; io_apic describe the registers.

apic_boot:
    mov   rbx, [apic_base]
    mov   dword ptr [rbx+0xf0], 0x1ff   ; SPURIOUS: the APIC is on
    mov   dword ptr [rbx+0x80], 0       ; TPR: every vector may come
    mov   rdx, [io_apic_base]
    mov   esi, apic_lines
apic_line:
    mov   eax, [rsi]                    ; the register of the line's lower half; 0: no more lines
    test  eax, eax
    jz    boot
    inc   eax
    mov   [rdx], eax
    mov   dword ptr [rdx+0x10], 0       ; to core 0
    dec   eax
    mov   [rdx], eax
    mov   eax, [rsi+4]
    mov   [rdx+0x10], eax
    add   rsi, 8
    jmp   apic_line

apic_interrupt:
    call  [driver_handlers+rax*8-FIRST_VECTOR*8]
    mov   rax, [apic_base]
    mov   dword ptr [rax+0xb0], 0       ; EOI
    ret
