# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: the declarations of sim/sim.h, and of headers that it includes, that are used.

cdef extern from "<stdbool.h>" nogil:
    ctypedef bint c_bool "bool"

cdef extern from "event/sample.h" nogil:
    struct vb_world_sample:
        uint32_t bytes
        uint32_t credits
        uint32_t held
        uint8_t paused
        uint8_t stopped
    struct vb_world_sampled_queue:
        uint32_t port
        uint32_t lane
    struct vb_world_sampler:
        vb_world_sampled_queue *queue
        uint32_t queues
        uint64_t interval
        uint64_t limit
        uint64_t rows
        bint stopped
        uint64_t *at
        vb_world_sample *sample

cdef extern from "sim/state.h" nogil:
    struct vb_sim_wire_packet:
        uint32_t length
        uint32_t payload
        uint16_t slid
        uint8_t level
        uint8_t hop_limit
        uint8_t *sgid
        uint8_t *dgid
        uint8_t *bytes
    ctypedef int vb_sim_group_change(void *context, const uint8_t *gid, uint32_t host,
                                     c_bool joins) noexcept
    struct vb_sim_program_group:
        uint8_t *gid
        uint32_t first
    struct vb_sim:
        uint32_t door_first
        uint32_t news_first
        uint32_t news_count
        void (*on_door)(void *) noexcept
        void *on_door_context
        vb_sim_wire_packet **wire_packet
        vb_sim_program_group *program_group
        uint32_t program_groups
        vb_sim_group_change *on_group
        void *on_group_context
        c_bool groups_are_split
        int *readable_fd
        uint32_t readable

cdef extern from "sim/sim.h" nogil:
    enum:
        VB_WORLD_LANES
        VB_SIM_BARE
        VB_SIM_ETHERNET
        VB_SIM_INFINIBAND
        VB_NIC_OWN_LEVEL
        VB_WORLD_LOSSY
        VB_WORLD_CREDITS
        VB_WORLD_PAUSES
        VB_WORLD_CREDIT_WINDOW
        VB_WORLD_CREDIT_BLOCK
        VB_WORLD_PAUSE_BYTES
        VB_WORLD_FECN_ROOT
        VB_WORLD_FECN_OUTPUT
        VB_WORLD_FECN_INPUT
        VB_WORLD_BY_FLOW
        VB_WORLD_BY_PACKET
        VB_WORLD_BY_INPUT
        VB_WORLD_BY_ARRIVAL
        VB_WORLD_SWITCH
        VB_WORLD_HOST
        VB_WORLD_DROPS
        VB_WORLD_END_TIME
        VB_WORLD_END_EVENTS
        VB_WORLD_END_EMPTY
        VB_WORLD_END_STUCK
        VB_WORLD_END_HALT
        VB_CONGESTION_NONE
        VB_CONGESTION_DCQCN
        VB_CONGESTION_CCT
        VB_CONGESTION_HPCC
        VB_CCT_ENTRIES
        VB_CCT_LEVELS
        VB_CCT_LOG
        VB_CCT_MULTIPLIER_BITS
        VB_HPCC_BYTES
        VB_WORLD_ARBITER_ENTRIES
        VB_COUNTER_COUNT
        VB_MAX_GROUPS
        IBV_WR_RDMA_WRITE
        IBV_WR_RDMA_READ
        IBV_WR_SEND
        IBV_QPT_RC
        IBV_QPT_UC
        IBV_QPT_UD
        VB_SIM_FLOW_TCP
        VB_BTH
        VB_RETH
        VB_IMM
        VB_FLOW_WAITING
    const uint64_t VB_WORLD_NEVER
    const uint64_t VB_SIM_JITTER_AUTO
    const uint32_t VB_WORLD_NONE

    struct vb_world_marking:
        uint32_t low
        uint32_t high
        double most
    struct vb_world_lane_config:
        int flow_control
        uint32_t room
    struct vb_world_class_config:
        vb_world_lane_config flow
        vb_world_marking mark
        double alpha
        uint32_t stop
        uint32_t go
        uint32_t spare
    struct vb_world_arbiter_entry:
        uint8_t lane
        uint8_t weight
    struct vb_world_arbiter_tables:
        vb_world_arbiter_entry *high
        vb_world_arbiter_entry *low
        uint32_t high_count
        uint32_t low_count
        uint8_t high_limit
        bint remembers
    struct vb_world_watchdog_config:
        uint64_t detect
        uint64_t restore
        bint forward
    struct vb_world_switch_config:
        uint32_t ports
        uint32_t lanes
        uint64_t buffer
        vb_world_marking mark
        vb_world_class_config *lane
        vb_world_arbiter_tables tables
        int balance
        int turns
        uint32_t cut_through
        uint64_t lifetime
        uint32_t fecn
        int fecn_at
        uint32_t fecn_rate
        bint fecn_to_hosts
        uint32_t extender
        bint floods
        uint32_t management
        vb_world_watchdog_config watchdog
    struct vb_world_group:
        uint16_t *port
        uint32_t count
    struct vb_world_table:
        const uint32_t *block
        uint32_t targets
        uint32_t sets
        const uint32_t *set
        const uint16_t *member
    struct vb_world_switch:
        vb_world_switch_config config
        uint32_t *port
        vb_world_group *group
        uint32_t groups
        uint64_t reservable
        vb_world_table table
        uint8_t *lane_of
    struct vb_world_port_counters:
        uint64_t packets
        uint64_t bytes
        uint64_t busy
        uint64_t stalled
        uint64_t queued_max
        uint64_t marked
        uint64_t pauses
        uint64_t storms
        uint64_t *dropped
    struct vb_world_input_queue:
        uint32_t first
    struct vb_world_gate
    struct vb_world_lanes:
        uint8_t *lane_of
        uint32_t count
        uint32_t data
        uint32_t inputs
        uint32_t waiting
        vb_world_input_queue *input_queue
    struct vb_world_port:
        uint32_t arrive_first
        uint32_t peer
        uint32_t node
        uint16_t number
        uint64_t rate
        uint64_t delay
        uint64_t pause_response
        double bit_error_rate
        vb_world_lanes *lanes
        vb_world_gate *gate
        vb_world_port_counters traffic
    struct vb_world_pool:
        pass
    struct vb_world_node:
        int kind
        uint32_t host
        vb_world_switch *sw
        uint32_t *port
        uint32_t ports
        uint32_t address
        uint32_t lmc
        uint32_t is_served
    struct vb_world_packet:
        uint32_t keeper
        uint32_t next
        uint32_t source
        uint32_t target
        uint16_t input
        uint8_t level_marks
        uint16_t bytes
        uint16_t payload
        uint8_t *header
        uint8_t flags
        uint8_t hops
    struct vb_world_packets:
        vb_world_packet *packet
    struct vb_world_sums:
        uint64_t events
        uint64_t made
        uint64_t copied
        uint64_t delivered
        uint64_t dropped
    struct vb_world_partition:
        vb_world_pool pool
        uint64_t delivered
        int64_t kept
        int error
    struct vb_world:
        const uint32_t *lid_host
        int error
        uint64_t now
        vb_world_port *port
        vb_world_node *node
        uint32_t ports
        uint32_t nodes
        uint32_t hosts
        uint32_t threads
        vb_world_packets packets
        vb_world_sampler **sampler
        vb_world_partition *partition
        c_bool traces
        uint32_t hop_limit
        uint32_t refused_at
    struct vb_world_link:
        uint64_t rate
        uint64_t delay
        double bit_error_rate
        uint64_t pause_response

    int vb_world_switch_create(const vb_world_switch_config *config, vb_world_switch **sw)
    int vb_world_switch_set_lanes(vb_world_switch *sw, const uint8_t *lanes, bint by_lane)
    int vb_world_switch_set_victim(vb_world_switch *sw, uint32_t port)
    int vb_world_switch_set_group(vb_world_switch *sw, uint32_t group, const uint16_t *ports,
                                  uint32_t count)
    uint32_t vb_world_switch_through(const vb_world *world, const vb_world_switch *sw,
                                     uint32_t port)
    int vb_world_add_switch(vb_world *world, vb_world_switch *sw, uint32_t *node)
    int vb_world_connect(vb_world *world, uint32_t a, uint32_t a_port, uint32_t b,
                         uint32_t b_port, const vb_world_link *link)
    int vb_world_set_link(vb_world *world, uint32_t node, uint32_t port, bint up, uint64_t at)
    int vb_world_halt(vb_world *world, uint64_t at, bint looks)
    int vb_world_run(vb_world *world, uint64_t until, uint64_t events)
    int vb_world_reaches(const vb_world *world, uint32_t node, uint32_t address)
    vb_world_port_counters vb_world_traffic(const vb_world *world, const vb_world_port *port)
    struct vb_world_route:
        uint32_t count
        uint32_t *port
    struct vb_world_reservation:
        uint64_t rate
        uint64_t buffer
    int vb_world_reserve(vb_world *world, uint32_t node, const vb_world_packet *packet,
                         const vb_world_reservation *reservation, vb_world_route **route)
    void vb_world_release(vb_world *world, vb_world_route *route,
                          const vb_world_reservation *reservation)
    vb_world_sums vb_world_count "vb_world_sums"(const vb_world *world)
    const char *vb_world_check(const vb_world *world, bint at_rest, char *text, size_t size)

    struct vb_engine_config:
        uint32_t window_bytes
        uint32_t ack_bytes
        uint32_t burst
        bint restart
    struct vb_dcqcn_config:
        double gain
        uint64_t alpha_interval
        uint64_t raise_interval
        uint64_t raise_bytes
        uint32_t fast_steps
        double add_rate
        double fast_add_rate
        double least_rate
        double least_factor
        uint64_t cut_interval
        bint target_clamped
    struct vb_cct_level:
        uint64_t timer
        uint8_t increase
        uint8_t min
        uint8_t trigger
    struct vb_cct_config:
        uint16_t *entry
        uint32_t limit
        vb_cct_level *level
    struct vb_hpcc_config:
        uint64_t base_rtt
        double target
        double add
        uint32_t stages
    struct vb_congestion:
        int kind
        uint64_t notice_interval
        vb_dcqcn_config dcqcn
        vb_cct_config cct
        vb_hpcc_config hpcc
    struct vb_nic_config:
        vb_congestion congestion
        uint8_t notice_level
        uint64_t doorbell
        uint64_t bus_rate
        uint64_t receive_latency
    struct vb_sim_config:
        uint64_t seed
        int framing
        uint16_t mtu
        uint8_t timeout
        uint8_t retry_cnt
        uint8_t rd_atomic
        vb_engine_config engine
        vb_nic_config nic
        uint8_t hop_limit
        vb_tcp_config tcp
        uint64_t tcp_jitter
    struct vb_sim_cct_event:
        uint64_t at
        uint32_t flow
    struct vb_sim_cct_log:
        uint64_t events
        vb_sim_cct_event *event
    struct vb_sim_flow_end:
        uint32_t resent
        uint32_t marked
        uint32_t notices
    struct vb_sim_flow:
        uint32_t source
        uint32_t target
        uint64_t bytes
        uint64_t start
        uint64_t finish
        uint64_t done
        uint64_t lost
        uint64_t message
        uint64_t reserve
        uint64_t buffer
        vb_sim_flow_end *end
        uint32_t timeouts
        uint8_t state
        uint8_t status
        uint8_t level
        uint8_t back_level
        uint8_t depth
        uint8_t opcode
        uint8_t type
        bint to_group
        bint management
        uint8_t path
        uint16_t pkey
    struct vb_sim_dependency:
        uint32_t first
        uint32_t then
    struct vb_counters:
        pass
    struct vb_counter_name:
        const char *name

    vb_sim_config vb_sim_defaults()
    int vb_sim_create(const vb_sim_config *config, vb_sim **sim)
    void vb_sim_destroy(vb_sim *sim)
    vb_world *vb_sim_world(vb_sim *sim)
    int vb_sim_keep_whole(vb_sim *sim)
    int vb_sim_add_host(vb_sim *sim, uint32_t *node)
    int vb_sim_set_framing(vb_sim *sim, uint32_t host, int framing)
    int vb_sim_set_nic(vb_sim *sim, uint32_t host, const vb_nic_config *config)
    int vb_sim_add_group(vb_sim *sim, const uint32_t *hosts, uint32_t count, uint32_t *group)
    const vb_counters *vb_sim_host_counters(const vb_sim *sim, uint32_t host)
    int vb_sim_check_flows(const vb_sim *sim, const vb_sim_flow *flows, uint64_t count,
                           uint64_t *bad)
    int vb_sim_add_flows(vb_sim *sim, const vb_sim_flow *flows, uint64_t count,
                         const vb_sim_dependency *after, uint64_t afters)
    const vb_sim_flow *vb_sim_flows(const vb_sim *sim, uint64_t *count)
    const vb_sim_cct_log *vb_sim_host_cct_log(const vb_sim *sim, uint32_t host)
    uint64_t vb_sim_flow_done(const vb_sim *sim, const vb_sim_flow *flow)
    uint64_t vb_sim_flows_left(const vb_sim *sim)
    uint32_t vb_sim_wire_bytes(int framing, uint32_t headers, uint32_t payload)
    uint64_t vb_sim_host_bytes()
    uint64_t vb_sim_qp_bytes()

cdef extern from "event/sample.h" nogil:
    int vb_world_add_sampler(vb_world *world, const vb_world_sampled_queue *queues, uint32_t count,
                             uint64_t interval, uint64_t start, uint64_t limit, uint32_t *number)
    void vb_world_sampler_stop(vb_world_sampler *sampler)

cdef extern from "event/watchdog.h" nogil:
    int vb_world_add_storm(vb_world *world, uint32_t node, uint32_t lane, uint64_t start,
                           uint64_t end)

cdef extern from "hca/counters.h" nogil:
    const vb_counter_name *vb_counter_names

cdef extern from "sim/host_inside.h" nogil:
    enum:
        VB_INSIDE_COSTS
        VB_INSIDE_TLPS
    struct vb_inside_config:
        uint64_t byte_time
        uint64_t round_trip
        uint64_t memory
        uint64_t cycle
        uint64_t iommu_miss
        uint64_t interrupt_time
        uint32_t mps
        uint32_t mrrs
        uint32_t tags
        uint32_t cores
        uint32_t *cost
        uint32_t inline_most
        uint32_t cqe
        uint32_t batch
        uint32_t iommu_entries
        uint32_t iommu_page
        uint32_t iommu_walks
        uint32_t mtt_entries
        uint32_t mtt_page
        uint32_t interrupt_packets
        uint64_t buffer
        uint32_t slices
        bint blueflame
        bint interrupts
    struct vb_inside_tlps:
        uint64_t count
        uint64_t bytes
    struct vb_inside_link:
        uint64_t busy
        uint64_t bytes
        vb_inside_tlps *tlp
    struct vb_inside_core:
        uint64_t free_at
        uint64_t busy
    struct vb_inside_cache:
        uint64_t hits
        uint64_t misses
    struct vb_inside_slice:
        uint64_t at
        uint64_t end
        uint32_t flow
        uint32_t bytes
        uint8_t row
        uint8_t what
    struct vb_inside_counters:
        uint64_t *cost
        uint64_t requests
        uint64_t doorbells
        uint64_t blueflames
        uint64_t headers_fetched
        uint64_t headers_placed
        uint64_t inlined
        uint64_t fetched
        uint64_t placed
        uint64_t completions
        uint64_t interrupts
        uint64_t merged
    struct vb_inside:
        vb_inside_config config
        vb_inside_link up
        vb_inside_link down
        vb_inside_core *core
        vb_inside_cache iotlb
        vb_inside_cache mtt
        vb_inside_counters counters
        vb_inside_slice *slice
        uint32_t sliced
    int vb_sim_set_inside(vb_sim *sim, uint32_t host, const vb_inside_config *config)
    const vb_inside *vb_sim_inside(const vb_sim *sim, uint32_t host)
    uint64_t vb_sim_inside_computes(vb_sim *sim, uint32_t host, uint32_t core, uint8_t what,
                                    uint64_t took)
    uint64_t vb_sim_inside_spun(const vb_inside *inside, uint32_t core, uint64_t now)

cdef extern from "sim/capture.h" nogil:
    int vb_sim_capture(vb_sim *sim, uint32_t node, uint32_t port, const char *path,
                       uint32_t bytes, c_bool infiniband)
    uint64_t vb_sim_captures_lost(const vb_sim *sim)

cdef extern from "wrap/capture.h" nogil:
    enum:
        VB_CAPTURE_BYTES_LEAST
        VB_CAPTURE_BYTES_MOST
    const char *vb_wrap_capture_problem(int error)
