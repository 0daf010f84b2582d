# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: the words of settings and results, and the fields of the arrays that
# World.flows, links, samples and the congestion log return.

FRAMINGS = {"bare": VB_SIM_BARE, "ethernet": VB_SIM_ETHERNET, "infiniband": VB_SIM_INFINIBAND}
GATES = {"lossy": VB_WORLD_LOSSY, "credits": VB_WORLD_CREDITS, "pauses": VB_WORLD_PAUSES}
TURNS = {"input": VB_WORLD_BY_INPUT, "arrival": VB_WORLD_BY_ARRIVAL}
BALANCES = {"flow": VB_WORLD_BY_FLOW, "packet": VB_WORLD_BY_PACKET}
ADAPTER = ("congestion", "notice_level", "doorbell", "bus_rate", "receive_latency")
RECOVERIES = {"go-back-n": 0, "go-back-0": 1}
FECN_AT = {"root": VB_WORLD_FECN_ROOT, "output": VB_WORLD_FECN_OUTPUT, "input": VB_WORLD_FECN_INPUT}
LANES_BY = {"level": 0, "lane": 1}
OPERATIONS = {"write": IBV_WR_RDMA_WRITE, "read": IBV_WR_RDMA_READ, "send": IBV_WR_SEND}
TRANSPORTS = {"rc": IBV_QPT_RC, "uc": IBV_QPT_UC, "ud": IBV_QPT_UD, "tcp": VB_SIM_FLOW_TCP}
ENDS = {
    VB_WORLD_END_TIME: "time",
    VB_WORLD_END_EMPTY: "done",
    VB_WORLD_END_STUCK: "deadlock",
}
STATES = ("waiting", "running", "done", "failed", "refused", "incomplete")
DROPS = ("full", "route", "damaged", "down", "lifetime", "headroom", "hops", "watchdog")

FLOW = np.dtype([
    ("source", "u4"), ("target", "u4"), ("bytes", "u8"), ("start", "u8"), ("finish", "u8"),
    ("done", "u8"), ("lost", "u8"), ("resent", "u4"), ("marked", "u4"), ("notices", "u4"),
    ("timeouts", "u4"),
    ("state", "u1"), ("status", "u1"), ("level", "u1"),
], align=True)
LINK = np.dtype([
    ("node", "u4"), ("port", "u4"), ("to_node", "u4"), ("to_port", "u4"), ("rate", "u8"),
    ("delay", "u8"), ("packets", "u8"), ("bytes", "u8"), ("busy", "u8"), ("stalled", "u8"),
    ("queued_max", "u8"), ("marked", "u8"), ("pauses", "u8"),
    ("storms", "u8"),
    *(("dropped_" + reason, "u8") for reason in DROPS),
])
QUEUE = np.dtype([("node", "u4"), ("port", "u4"), ("lane", "u4"), ("link", "u4")])
EVENT = np.dtype([("time", "u8"), ("flow", "u4")], align=True)
SAMPLE = np.dtype([
    ("bytes", "u4"), ("credits", "u4"), ("held", "u4"), ("paused", "?"), ("stopped", "?"),
    ("reserved", "u2"),
])
