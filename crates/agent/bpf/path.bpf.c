// The flow path on an interface of the mobile host: the shell in eBPF around crates/flow/c/flow.h, which decides. The shell finds the
// flow, reads the packet, holds the lock and carries out the verdict.
//
// The programs send nothing and have no timer. User space reads notices from the ring `flow_notices`, looks at flows in the map `flows`, and
// changes them by running the program `order`. If user space hangs, the link's `expires_at` passes, and from then on every packet passes
// as it is. Maps and programs go with the process that loaded them.

#include "kernel.h"

#define FLOW_ORDERS 0
#include "flow.h"

#include "path/maps.h"
#include "path/copies.h"
#include "path/notices.h"
#include "parse.h"
#include "path/predicted.h"
#include "rewrite.h"

#define PASS -1 // TCX_NEXT: the next program of the hook runs

// The flow of a packet; 0, and a count, if it belongs to none. Predictions, which are looked up before the table, end with their flow.
INLINE struct flow *find(const struct key *key, const struct packet *packet, struct prediction *own, struct prediction *other,
			 int direction, int *is_new)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, key);

	enum finding finding = find_at_host(flow, packet, direction);

	if (finding == FLOW_KNOWN)
		return flow;
	if (direction == OUTGOING) {
		if (flow)
			bpf_map_delete_elem(&flows, key);
		free_prediction(own, key);
		free_prediction(other, key);
	}
	if (finding != FLOW_BEGINS) {
		count(ALONE_UNKNOWN);
		return 0;
	}
	*is_new = 1;
	return new_flow(key);
}

// Whether the data of the host begin with the first byte that the peer has not acknowledged.
INLINE int is_first_unacknowledged(const struct flow *flow, const struct packet *packet)
{
	return flow->incoming.flags & HALF_ACKED && flow->incoming.acked == packet->seq;
}

// Whether data of the host pass again. To be called before handle_segment.
INLINE int is_retransmission(const struct flow *flow, const struct packet *packet)
{
	const struct half_core *data = &flow->incoming;

	return packet->len && data->runs_len && before(packet->seq, data->end);
}

INLINE int pass_by(struct flow *flow, const struct packet *packet, int direction)
{
	bpf_spin_lock(&flow->lock);
	leave_alone(flow, packet, direction);
	bpf_spin_unlock(&flow->lock);
	count(ALONE_POLICY);
	return PASS;
}

// The Ethernet header of a packet, for packets that user space sends.
INLINE void note_frame(struct __sk_buff *skb, struct flow *flow, u64 now, int direction)
{
	const u8 *frame = (const u8 *)(long)skb->data;

	if (frame + FRAME_LEN > (const u8 *)(long)skb->data_end)
		return;
	u32 check = check_of(frame, now), *noted = frame_check(flow, direction);

	if (*noted == check)
		return;
	// If another processor stores another header at the same time, the check may be of that one, until the era ends.
	WRITE_ONCE(*noted, 0);
	if (!bpf_skb_load_bytes(skb, 0, frame_of(flow, direction), FRAME_LEN))
		WRITE_ONCE(*noted, check);
}

// Decides on a packet that was read.
INLINE int decide(struct __sk_buff *skb, struct scratch *scratch, struct key *key, int direction)
{
	struct packet *packet = &scratch->packet;
	struct verdict *verdict = &scratch->verdict;
	u64 status = status_now();
	u32 family = family_of(skb);
	const struct link *link = link_of(status, family);
	u32 number = prediction_number(key, direction);
	struct prediction *own = prediction_at(number), *other = prediction_at(number ^ 1);
	int is_new = 0;

	if (!link || !own || !other)
		return PASS;
	count(direction == OUTGOING ? SEEN : SEEN_IN);
	packet->now = rules.test_clock ? skb->tstamp : bpf_ktime_get_ns();
	if (direction == INCOMING)
		note_incoming(key, link, family, packet->now);
	struct flow *flow = find(key, packet, own, other, direction, &is_new);

	if (!flow)
		return PASS;
	if (flow->stage & STAGE_LEFT_ALONE)
		return pass_by(flow, packet, direction);
	if (rules.frame_len == FRAME_LEN)
		note_frame(skb, flow, packet->now, direction);
	begin_verdict(verdict, packet);
	// On a calm link a retransmission may be the first sign of an outage.
	int is_again = direction == OUTGOING && is_retransmission(flow, packet);
	int may_copy = is_again || (direction == OUTGOING && !link_is_calm(status, family));

	FORGET(is_again, packet->seq);
	FORGET(may_copy, packet->seq);
	bpf_spin_lock(&flow->lock);
	handle_segment(flow, link, &rules, key, packet, verdict, own, other, is_new, link_is_calm(status, family), direction);
	bpf_spin_unlock(&flow->lock);

	if (direction == INCOMING)
		note_arrival(&arrival_noticed_at[family & 1], key, link, packet->now);
	if (verdict->notice)
		notify(key, packet->now, direction, verdict->notice, verdict->notice_ack);
	if (verdict->withhold) {
		count(WITHHELD);
		// On egress TC_ACT_SHOT reports a drop to the host's TCP, which reduces its window. A redirect to interface 0, which does not
		// exist, drops the packet without a report.
		return direction == OUTGOING ? bpf_redirect(0, 0) : TC_ACT_SHOT;
	}
	rewrite(skb, &scratch->offsets, packet, verdict);
	if (may_copy && packet->len && is_first_unacknowledged(flow, packet))
		copy_segment(skb, is_again, link_is_calm(status, family) != 0);
	return PASS;
}

INLINE int handle(struct __sk_buff *skb, int direction)
{
	if (is_predicted(skb, direction))
		return PASS;
	KEY key = {};
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);

	if (!scratch)
		return PASS;
	__builtin_memset(&scratch->offsets, 0, sizeof(scratch->offsets));
	__builtin_memset(&scratch->packet, 0, sizeof(scratch->packet));
	__builtin_memset(&scratch->verdict, 0, sizeof(scratch->verdict));
	if (read_packet(skb, scratch, &key, direction) != READ) {
		if (direction == INCOMING && status_now() & STATUS_LISTENS)
			note_other(skb);
		return PASS;
	}
	return decide(skb, scratch, &key, direction);
}

SEC("classifier")
int egress(struct __sk_buff *skb)
{
	if (skb->mark && skb->mark == rules.mark_out) {
		skb->mark = 0;
		count(INJECTED);
		return PASS;
	}
	// For the host itself.
	if (skb->mark && skb->mark == rules.mark_in)
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	return handle(skb, OUTGOING);
}

SEC("classifier")
int ingress(struct __sk_buff *skb)
{
	if (skb->mark && skb->mark == rules.mark_in) {
		skb->mark = 0;
		count(INJECTED);
		return PASS;
	}
	return handle(skb, INCOMING);
}

// User space runs this program on an order instead of a packet. Returns 0 if there is such a flow.
SEC("classifier")
int order(struct __sk_buff *skb)
{
	struct order order;

	if (bpf_skb_load_bytes(skb, 0, &order, sizeof(order)))
		return 1;
	u32 number = prediction_number(&order.key, order.direction & 1);
	struct prediction *own = prediction_at(number), *other = prediction_at(number ^ 1);
	struct flow *flow = bpf_map_lookup_elem(&flows, &order.key);

	if (!own || !other)
		return 1;
	if (flow) {
		bpf_spin_lock(&flow->lock);
		handle_order(flow, &order, own, other);
		bpf_spin_unlock(&flow->lock);
	} else if (order.kind == ORDER_FREE) {
		free_prediction(own, &order.key);
	}
	return !flow;
}

char _license[] SEC("license") = "Dual MIT/GPL";
