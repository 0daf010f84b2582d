// SPDX-License-Identifier: Apache-2.0
/*
 * Opens a device's adapter as the environment asks. device.c calls this, under its lock.
 */
#ifndef VB_DROPIN_ADAPTER_H
#define VB_DROPIN_ADAPTER_H

#include "host/host.h"

/* A port's state or its GIDs have changed; called from the adapter's RoCE thread. */
typedef void vb_port_event(void *argument, uint8_t port_num, enum ibv_event_type type);

/* `ports` stay the caller's. Returns what vb_host_open does, and leaves `host` as it is then. */
int vb_dropin_adapter_open(const struct vb_port_settings *ports, vb_port_event *event,
                           void *argument, struct vb_host **host);

/* Logs the counters of an adapter that is about to be closed, or was open at the program's end;
 * NULL: nothing. */
void vb_dropin_adapter_log_counters(struct vb_host *closing);

#endif
