; SPDX-License-Identifier: Apache-2.0
; The kernel's variables. Python sets the first group before the boot, from the devices that the
; computer has; a base of 0 says that there is no such device. Large tables are at the addresses of
; verbena.host.kernel.layout.

timer_base:       dq 0
tick_ns:          dq 0
keyboard_base:    dq 0
display_base:     dq 0
mouse_base:       dq 0
display_columns:  dq 0
display_rows:     dq 0
disk_base:        dq 0
disk_block:       dq 0                  ; bytes
disk_most:        dq 0                  ; blocks of a request
disk_read_command: dq 0
adapter_base:     dq 0
own_host:         dq 0
poll_budget:      dq 0
socket_limit:     dq 0
cycles_per_us:    dq 0
kernel_root:      dq 0                  ; the page table of the idle process
handlers:         times 32 dq unexpected_interrupt
table_address:    dq 0x000ffffffffff000 ; the address in an entry of a page table
idt_pointer:
    dw 4095
    dq IDT

    align 8
current:          dq 0                  ; the process that runs, as its place in the table
kernel_stack:     dq 0                  ; the end of its stack
user_rsp:         dq 0
last_stamp:       dq 0
need_resched:     dq 0
poll_pending:     dq 0
ticking:          dq 0
ticks:            dq 0
expected_page:    dq 0
panicked:         dq 0
panic_vector:     dq 0
panic_error:      dq 0
panic_address:    dq 0
panic_rip:        dq 0
unexpected:       dq 0
interrupt_counts: times 64 dq 0
keys:             times 32 dq 0
keys_in:          dq 0
keys_out:         dq 0
keys_dropped:     dq 0
cursor_row:       dq 0
cursor_column:    dq 0
disk_first:       dq 0
disk_last:        dq 0
pool_first:       dq 0
pool_free:        dq 0
polls:            dq 0
budget_left:      dq 0                  ; frames until the next tick
budgets_spent:    dq 0
frames_taken:     dq 0
frames_sent:      dq 0
frames_reclaimed: dq 0
frames_ignored:   dq 0
frames_without_buffer: dq 0
datagrams_sent:   dq 0
datagrams_received: dq 0
datagrams_dropped: dq 0
datagrams_without_port: dq 0
apic_base:        dq 0                  ; the local APIC; 0: there is none
io_apic_base:     dq 0
apic_lines:       times 24 dq 0         ; register of a line's lower half, and its value; a 0 ends
                  dq 0
driver_handlers:  times 32 dq unexpected_interrupt
receive_buffers:  times 32 dq 0
send_buffers:     times 32 dq 0
kernel_data_end:
