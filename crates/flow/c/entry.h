// Flow tables for many connections. Each packet uses a `struct entry`; its *details*, a `struct flow`, are added for bulk transfers, for
// held ACKs and orders, and while the link is down or changing. Without details a packet passes unchanged, and the functions of flow.h
// run on a temporary flow made from the entry.
//
// An entry does not keep where segments begin, which ACKs were shown when, SACK blocks, the rate of the sender's clock and the rate of the flow.

#pragma once

#include "between.h"
#include "flow.h"

#define NS_PER_US 1000

// The sides' flags that an entry keeps.
#define SIDE_FLAGS (HALF_ACKED | HALF_LAST | HALF_LAST_STAMPS | HALF_ENDING | HALF_RESET)
#define TRIP_KEPT (TRIP_SAMPLED | TRIP_TIMED | TRIP_NXT | TRIP_FAR_TIMED)

// Whether packets over the link need details of their flows: not while it is up and nothing is ordered.
INLINE int needs_details(const struct link *link)
{
	return link->is_down || link->is_releasing || link->has_stall || link->awaits_packets || link->limits_window ||
	       link->drops_duplicates;
}

INLINE int is_bulk(const volatile struct rules *rules, const struct flow *flow)
{
	return flow->incoming_acks.bytes_acked >= rules->detail_after || flow->outgoing_acks.bytes_acked >= rules->detail_after;
}

INLINE void expand_side(const struct half *half, const struct side *side, u64 seen_at)
{
	struct half_core *core = half->core;
	struct half_acks *acks = half->acks;
	struct half_rest *rest = half->rest;
	int has_end = !!(side->flags & SIDE_END);

	core->acked = side->acked;
	core->end = rest->counted = acks->start = side->end;
	core->last_nxt = side->last_nxt;
	core->last_val = side->last_val;
	core->last_ecr = side->last_ecr;
	// The time of the last data is not kept: it is at most that of the last packet.
	core->last_data_at = has_end ? seen_at : 0;
	core->newest_stamp_at = 0;
	core->flags = (side->flags & SIDE_FLAGS) | (has_end ? HALF_DATA_ERA : 0);
	core->last_window = side->last_window;
	core->size = side->longest_segment ? side->longest_segment : 1;
	core->last_ttl = side->last_ttl;
	core->last_class = side->last_class;
	core->window_shift = side->window_shift;
	core->runs_len = has_end;
	acks->advanced_at = has_end ? seen_at : 0;
	acks->bytes_acked = rest->bytes = side->bytes_acked;
	acks->flight_since = acks->flight_from = acks->flush_at = 0;
	acks->shown = acks->flight_bytes = acks->lowered = 0;
	acks->longest_segment = side->longest_segment;
	acks->shown_every = acks->shown_next = acks->shown_len = 0;
	rest->hold_from = rest->first_stamp_at = rest->refresh_at = rest->refresh_ticks_per_sec = 0;
	rest->last_data_era = rest->newest_stamp_era = rest->newest_stamp = rest->first_stamp = 0;
	rest->refresh_stale = rest->refresh_value = rest->most_window = rest->flushed_from = 0;
	rest->withheld = rest->resumed_from = rest->sack_len = 0;
}

// Makes a flow from an entry. Elements of arrays beyond their lengths are not changed.
INLINE void expand(struct flow *flow, const struct entry *entry, u32 epoch)
{
	u64 micros = entry->seen_at / NS_PER_US;

	flow->epoch = epoch;
	flow->flags = (entry->flags & TRIP_KEPT) | TRIP_HEARD_ERA | (entry->beyond ? TRIP_BEYOND : 0);
	flow->latest = flow->least = (u64)entry->smoothed * NS_PER_US;
	flow->smoothed_high = 0;
	set_smoothed(flow, flow->latest);
	flow->stamped_at = flow->far_stamped_at = 0;
	// Extends the 32-bit times in microseconds, which are before `seen_at`.
	flow->timed_at = (micros - (u32)((u32)micros - entry->timed_at)) * NS_PER_US;
	flow->far_timed_at = (micros - (u32)((u32)micros - entry->far_timed_at)) * NS_PER_US;
	flow->heard_era = 0;
	flow->heard_at = flow->seen_at = entry->seen_at;
	flow->began_at = entry->began_at;
	flow->stamped = flow->far_stamped = 0;
	flow->timed = entry->timed;
	flow->far_timed = entry->far_timed;
	flow->nxt = entry->outgoing.last_nxt;
	flow->beyond = (u64)entry->beyond * NS_PER_US;
	flow->host_isn = entry->host_isn;
	flow->host_fin = entry->host_fin;
	flow->peer_fin = entry->peer_fin;
	flow->stage = entry->stage;
	flow->frame_out_check = flow->frame_in_check = 0;
	struct half out = half_of(flow, OUTGOING), in = half_of(flow, INCOMING);

	expand_side(&out, &entry->outgoing, entry->seen_at);
	expand_side(&in, &entry->incoming, entry->seen_at);
}

INLINE void compact_side(struct side *side, const struct half *half)
{
	u8 flags = half->core->flags & SIDE_FLAGS;

	if (half->core->runs_len)
		flags |= SIDE_END;
	side->acked = half->core->acked;
	side->end = half->core->runs_len ? runs_end(half) : 0;
	side->last_nxt = half->core->last_nxt;
	side->last_val = half->core->last_val;
	side->last_ecr = half->core->last_ecr;
	side->bytes_acked = half->acks->bytes_acked > 0xffffffff ? 0xffffffff : half->acks->bytes_acked;
	side->last_window = half->core->last_window;
	side->longest_segment = half->acks->longest_segment > 0xffff ? 0xffff : half->acks->longest_segment;
	side->window_shift = half->core->window_shift;
	side->flags = flags;
	side->last_ttl = half->core->last_ttl;
	side->last_class = half->core->last_class;
}

INLINE u32 to_micros(u64 nanos)
{
	u64 micros = nanos / NS_PER_US;

	return micros > 0xffffffff ? 0xffffffff : micros;
}

// Makes an entry from a flow that holds nothing.
INLINE void compact(struct entry *entry, const struct flow *flow)
{
	entry->flags = (entry->flags & ENTRY_DETAILED) | (flow->flags & TRIP_KEPT);
	entry->seen_at = flow->seen_at;
	entry->began_at = flow->began_at;
	entry->smoothed = to_micros(smoothed(flow));
	entry->beyond = flow->beyond && flow->beyond < NS_PER_US ? 1 : to_micros(flow->beyond);
	entry->host_isn = flow->host_isn;
	entry->host_fin = flow->host_fin;
	entry->peer_fin = flow->peer_fin;
	entry->stage = flow->stage;
	entry->timed = flow->timed;
	entry->timed_at = flow->timed_at / NS_PER_US;
	entry->far_timed = flow->far_timed;
	entry->far_timed_at = flow->far_timed_at / NS_PER_US;
	struct half out = half_of(flow, OUTGOING), in = half_of(flow, INCOMING);

	compact_side(&entry->outgoing, &out);
	compact_side(&entry->incoming, &in);
}

// Whether an entry has all the state of the flow: nothing is held, ordered or in progress.
INLINE int is_at_rest(const struct flow *flow)
{
	u32 busy = HALF_SHRUNK | HALF_RECORDING | HALF_CLOCKED | HALF_LIMITED;

	struct half out = half_of(flow, OUTGOING), in = half_of(flow, INCOMING);

	return !((flow->outgoing.flags | flow->incoming.flags) & busy) && !is_held(&out) && !is_held(&in);
}

// Handles a segment that passes unchanged.
INLINE void follow_segment(struct flow *flow, const struct packet *packet, int direction)
{
	struct half acks = half_of(flow, direction), data = half_of(flow, !direction), outgoing = half_of(flow, OUTGOING);

	note_seen(flow, packet->now);
	if (direction == OUTGOING || packet->flags & SYN || !is_beyond_window(&outgoing, packet)) {
		int is_past = direction == INCOMING && !(packet->flags & SYN) && is_before_window(&outgoing, packet);

		FORGET(is_past, packet->seq);
		if (direction == OUTGOING)
			time_outgoing(flow, packet);
		else
			time_incoming(flow, packet);
		BARRIER();
		note_data(&data, packet);
		BARRIER();
		if (!is_past)
			note_ack(&acks, packet);
		acks.core->flags &= ~HALF_BEHIND;
	}
	note_stage(flow, packet, direction);
}

// Handles a segment of an entry without details; `flow` is scratch memory. The caller holds the lock of the entry. Returns whether the
// flow needs details from now on.
INLINE int follow(struct entry *entry, struct flow *flow, const volatile struct rules *rules, const struct packet *packet, int direction)
{
	expand(flow, entry, 0);
	if (direction == OUTGOING && is_refused(flow, packet))
		return 0;
	time_beyond(flow, packet, direction);
	follow_segment(flow, packet, direction);
	note_opening(flow, packet);
	compact(entry, flow);
	return is_bulk(rules, flow);
}

// Handles a segment of a flow with details. `none` are two unused predictions. Returns 0 if its receiver would refuse it, in which case it
// passes. The caller holds the lock of the flow and has called `begin_verdict`.
INLINE int pass_between(struct flow *flow, const struct link *link, const volatile struct rules *rules, const struct key *key,
			const struct packet *packet, struct verdict *verdict, struct prediction *none, int direction)
{
	if (direction == OUTGOING && !is_window_probe(flow, link, packet, direction) && is_refused(flow, packet))
		return 0;
	time_beyond(flow, packet, direction);
	handle_segment(flow, link, rules, key, packet, verdict, none, none + 1, 0, 0, direction);
	note_opening(flow, packet);
	return 1;
}
