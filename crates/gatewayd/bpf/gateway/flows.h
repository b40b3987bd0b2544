// The flow path for the TCP connections of mobile hosts. Its link is that of the mobile host, whose side is the peer's; what is called the
// host there is the fixed host.

#pragma once

#include "state.h"

#include "between.h"
#include "flow.h"

#include "parse.h"
#include "rewrite.h"

// What does not fit the stack. A processor runs one program at a time: both hooks run with softirqs off.
struct current {
	struct link link;
	struct prediction none[2]; // header prediction is for hosts with a few fast flows: these lines are never active
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct current);
} currents SEC(".maps");

INLINE struct prediction *neighbour_of(struct prediction *own, u32 number)
{
	return 0;
}

// Whether both ends have agreed on their numbers, and neither has ended.
INLINE int is_under_way(const struct flow *flow)
{
	u16 ended = STAGE_HOST_FIN | STAGE_PEER_FIN;

	return (flow->incoming.flags | flow->outgoing.flags) & HALF_ACKED && !(flow->stage & STAGE_RESET) &&
	       (flow->stage & ended) != ended;
}

// Whether a mobile host refuses what comes from the fixed side: anybody can send it. (The core asks the same of what comes in.)
INLINE int is_refused(const struct flow *flow, const struct packet *packet)
{
	const struct half *data = &flow->incoming;

	return is_beyond_window(data, packet) || is_before_window(data, packet);
}

// The flow of a packet; 0 if there is no room for it, or if it is about a flow that is not known. Connections that are older than the
// programs are learnt from any of their packets.
INLINE struct flow *find(const struct key *key, const struct packet *packet, int *is_new)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, key);

	// A SYN from a stranger would change the numbers of a connection whose ends do not heed it (RFC 5961 section 4).
	if (flow && packet->flags & SYN && is_under_way(flow)) {
		count(ALONE_UNKNOWN);
		return 0;
	}
	if (flow && begins_between(flow, packet)) {
		bpf_map_delete_elem(&flows, key);
		flow = 0;
	}
	if (flow)
		return flow;
	if (packet->flags & RST) {
		count(ALONE_UNKNOWN);
		return 0;
	}
	*is_new = 1;
	return new_flow(key);
}

// Sends a packet to or from a mobile host on the flow path, if it is TCP. Returns whether it is withheld; it may be rewritten.
INLINE int withholds(struct __sk_buff *skb, struct mobile *mobile, u64 now, u64 expires, int direction)
{
	KEY key = {};
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
	struct current *current = bpf_map_lookup_elem(&currents, &zero);

	if (!rules.holds || !scratch || !current)
		return 0;
	struct packet *packet = &scratch->packet;
	struct verdict *verdict = &scratch->verdict;

	__builtin_memset(&scratch->offsets, 0, sizeof(scratch->offsets));
	__builtin_memset(packet, 0, sizeof(*packet));
	__builtin_memset(verdict, 0, sizeof(*verdict));
	if (read_packet(skb, scratch, &key, direction) != READ)
		return 0;
	count(direction == OUTGOING ? SEEN : SEEN_IN);
	packet->now = now;
	bpf_spin_lock(&mobile->lock);
	current->link = mobile->link;
	bpf_spin_unlock(&mobile->lock);
	current->link.expires_at = expires;
	const struct link *link = &current->link;
	int is_new = 0;
	struct flow *flow = find(&key, packet, &is_new);

	if (!flow)
		return 0;
	if (flow->stage & STAGE_LEFT_ALONE) {
		count(ALONE_POLICY);
		return 0;
	}
	begin_verdict(verdict, packet);

	bpf_spin_lock(&flow->lock);
	if (direction == OUTGOING && is_refused(flow, packet)) {
		bpf_spin_unlock(&flow->lock);
		return 0;
	}
	time_beyond(flow, packet, direction);
	handle_segment(flow, link, &rules, &key, packet, verdict, &current->none[0], &current->none[1], is_new, 0, direction);
	note_opening(flow, packet);
	bpf_spin_unlock(&flow->lock);

	if (direction == INCOMING)
		note_arrival(&mobile->arrival_noticed_at, &key, link, now);
	if (verdict->notice)
		notify(&key, now, direction, verdict->notice, verdict->notice_ack);
	// User space hangs: the flow is followed, and nothing is done.
	if (now >= expires)
		return 0;
	if (verdict->withhold) {
		count(WITHHELD);
		return 1;
	}
	rewrite(skb, &scratch->offsets, packet, verdict);
	return 0;
}
