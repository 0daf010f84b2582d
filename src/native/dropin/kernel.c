// SPDX-License-Identifier: Apache-2.0
/*
 * Conversions between the kernel's structs (rdma/ib_user_verbs.h) and libibverbs', which librdmacm
 * calls. They move fields and check nothing.
 */
#include <string.h>

#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include "abi/path.h"
#include "abi/queue.h"
#include "dropin/export.h"

#define TAKE(field) to->field = from->field

VB_EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, struct ib_uverbs_ah_attr *from)
{
    memcpy(to->grh.dgid.raw, from->grh.dgid, sizeof(to->grh.dgid));
    TAKE(grh.flow_label);
    TAKE(grh.sgid_index);
    TAKE(grh.hop_limit);
    TAKE(grh.traffic_class);
    TAKE(dlid);
    TAKE(sl);
    TAKE(src_path_bits);
    TAKE(static_rate);
    TAKE(is_global);
    TAKE(port_num);
}

static void take_cap(struct ibv_qp_cap *to, const struct ib_uverbs_qp_attr *from)
{
    TAKE(max_send_wr);
    TAKE(max_recv_wr);
    TAKE(max_send_sge);
    TAKE(max_recv_sge);
    TAKE(max_inline_data);
}

/* qp_state stays: librdmacm sets it before the call. */
VB_EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, struct ib_uverbs_qp_attr *from)
{
    TAKE(cur_qp_state);
    TAKE(path_mtu);
    TAKE(path_mig_state);
    TAKE(qkey);
    TAKE(rq_psn);
    TAKE(sq_psn);
    TAKE(dest_qp_num);
    TAKE(qp_access_flags);
    take_cap(&to->cap, from);
    ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
    ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
    TAKE(pkey_index);
    TAKE(alt_pkey_index);
    TAKE(en_sqd_async_notify);
    TAKE(sq_draining);
    TAKE(max_rd_atomic);
    TAKE(max_dest_rd_atomic);
    TAKE(min_rnr_timer);
    TAKE(port_num);
    TAKE(timeout);
    TAKE(retry_cnt);
    TAKE(rnr_retry);
    TAKE(alt_port_num);
    TAKE(alt_timeout);
}

/* The kernel's path record and libibverbs' have the same fields in another order. */
#define TAKE_PATH()                                                                                \
    do {                                                                                           \
        memcpy(&to->dgid, &from->dgid, 16);                                                        \
        memcpy(&to->sgid, &from->sgid, 16);                                                        \
        TAKE(dlid);                                                                                \
        TAKE(slid);                                                                                \
        TAKE(raw_traffic);                                                                         \
        TAKE(flow_label);                                                                          \
        TAKE(hop_limit);                                                                           \
        TAKE(traffic_class);                                                                       \
        TAKE(reversible);                                                                          \
        TAKE(numb_path);                                                                           \
        TAKE(pkey);                                                                                \
        TAKE(sl);                                                                                  \
        TAKE(mtu_selector);                                                                        \
        TAKE(mtu);                                                                                 \
        TAKE(rate_selector);                                                                       \
        TAKE(rate);                                                                                \
        TAKE(packet_life_time_selector);                                                           \
        TAKE(packet_life_time);                                                                    \
        TAKE(preference);                                                                          \
    } while (0)

VB_EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to,
                                           struct ib_user_path_rec *from)
{
    TAKE_PATH();
}

VB_EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, struct ibv_sa_path_rec *from)
{
    TAKE_PATH();
}
