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
	return flow->incoming.bytes_acked >= rules->detail_after || flow->outgoing.bytes_acked >= rules->detail_after;
}

INLINE void expand_side(struct half *half, const struct side *side, u64 seen_at)
{
	int has_end = !!(side->flags & SIDE_END);

	// The time of the last data is not kept: it is at most that of the last packet.
	half->last_data_at = half->advanced_at = has_end ? seen_at : 0;
	half->bytes_acked = side->bytes_acked;
	half->newest_stamp_at = half->flush_at = half->hold_from = half->flight_since = half->flight_from = 0;
	half->newest_stamp = 0;
	half->acked = half->shown = side->acked;
	half->longest_segment = side->longest_segment;
	half->last_nxt = side->last_nxt;
	half->last_val = side->last_val;
	half->last_ecr = side->last_ecr;
	half->flags = side->flags & SIDE_FLAGS;
	half->flight_bytes = half->flushed_from = half->resumed_from = 0;
	half->withheld = half->lowered = 0;
	half->last_window = side->last_window;
	half->last_ttl = side->last_ttl;
	half->last_class = side->last_class;
	half->runs_len = has_end;
	half->shown_len = half->sack_len = 0;
	half->window_shift = side->window_shift;
	half->shown_next = half->shown_every = 0;
	half->runs[0].start = half->runs[0].end = side->end;
	half->runs[0].size = side->longest_segment ? side->longest_segment : 1;
	half->first_stamp_at = half->refresh_at = half->refresh_ticks_per_sec = 0;
	half->first_stamp = half->refresh_stale = half->refresh_value = half->most_window = 0;
}

// Makes a flow from an entry. Elements of arrays beyond their lengths are not changed.
INLINE void expand(struct flow *flow, const struct entry *entry, u32 epoch)
{
	u64 micros = entry->seen_at / NS_PER_US;

	flow->epoch = epoch;
	flow->smoothed = flow->latest = flow->least = (u64)entry->smoothed * NS_PER_US;
	flow->stamped_at = flow->far_stamped_at = 0;
	// Extends the 32-bit times in microseconds, which are before `seen_at`.
	flow->timed_at = (micros - (u32)((u32)micros - entry->timed_at)) * NS_PER_US;
	flow->far_timed_at = (micros - (u32)((u32)micros - entry->far_timed_at)) * NS_PER_US;
	flow->heard_at = flow->seen_at = entry->seen_at;
	flow->began_at = entry->began_at;
	flow->stamped = flow->far_stamped = 0;
	flow->timed = entry->timed;
	flow->far_timed = entry->far_timed;
	flow->nxt = entry->outgoing.last_nxt;
	flow->flags = (entry->flags & TRIP_KEPT) | (entry->beyond ? TRIP_BEYOND : 0);
	flow->beyond = (u64)entry->beyond * NS_PER_US;
	flow->bytes_in = entry->outgoing.bytes_acked;
	flow->bytes_out = entry->incoming.bytes_acked;
	flow->host_isn = entry->host_isn;
	flow->host_fin = entry->host_fin;
	flow->peer_fin = entry->peer_fin;
	flow->stage = entry->stage;
	expand_side(&flow->outgoing, &entry->outgoing, entry->seen_at);
	expand_side(&flow->incoming, &entry->incoming, entry->seen_at);
}

INLINE void compact_side(struct side *side, const struct half *half)
{
	u8 flags = half->flags & SIDE_FLAGS;

	if (half->runs_len)
		flags |= SIDE_END;
	side->acked = half->acked;
	side->end = half->runs_len ? runs_end(half) : 0;
	side->last_nxt = half->last_nxt;
	side->last_val = half->last_val;
	side->last_ecr = half->last_ecr;
	side->bytes_acked = half->bytes_acked > 0xffffffff ? 0xffffffff : half->bytes_acked;
	side->last_window = half->last_window;
	side->longest_segment = half->longest_segment > 0xffff ? 0xffff : half->longest_segment;
	side->window_shift = half->window_shift;
	side->flags = flags;
	side->last_ttl = half->last_ttl;
	side->last_class = half->last_class;
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
	entry->smoothed = to_micros(flow->smoothed);
	entry->beyond = flow->beyond && flow->beyond < NS_PER_US ? 1 : to_micros(flow->beyond);
	entry->host_isn = flow->host_isn;
	entry->host_fin = flow->host_fin;
	entry->peer_fin = flow->peer_fin;
	entry->stage = flow->stage;
	entry->timed = flow->timed;
	entry->timed_at = flow->timed_at / NS_PER_US;
	entry->far_timed = flow->far_timed;
	entry->far_timed_at = flow->far_timed_at / NS_PER_US;
	compact_side(&entry->outgoing, &flow->outgoing);
	compact_side(&entry->incoming, &flow->incoming);
}

// Whether an entry has all the state of the flow: nothing is held, ordered or in progress.
INLINE int is_at_rest(const struct flow *flow)
{
	u32 busy = HALF_SHRUNK | HALF_RECORDING | HALF_CLOCKED | HALF_LIMITED;

	return !((flow->outgoing.flags | flow->incoming.flags) & busy) && !is_held(&flow->outgoing) && !is_held(&flow->incoming);
}

// Handles a segment that passes unchanged.
INLINE void follow_segment(struct flow *flow, const struct packet *packet, int direction)
{
	struct half *acks = direction == OUTGOING ? &flow->outgoing : &flow->incoming;
	struct half *data = direction == OUTGOING ? &flow->incoming : &flow->outgoing;

	if (direction == OUTGOING || packet->flags & SYN || !is_beyond_window(&flow->outgoing, packet)) {
		int is_past = direction == INCOMING && !(packet->flags & SYN) && is_before_window(&flow->outgoing, packet);

		FORGET(is_past, packet->seq);
		if (direction == OUTGOING)
			time_outgoing(flow, packet);
		else
			time_incoming(flow, packet);
		BARRIER();
		note_data(data, packet);
		BARRIER();
		if (!is_past)
			note_ack(acks, packet);
		acks->shown = acks->acked;
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
