// The round trip of a flow, queues included, from the packets that pass.
//
// A host that only receives has two sources: the handshake, and the timestamps that the peer echoes on its data (RFC 7323). A host that
// sends also has its own data and their ACKs.

#pragma once

#include "half.h"
#include "packet.h"

// RFC 6298 section 2.3, the gain of SRTT.
INLINE void sample(struct flow *flow, u64 sample)
{
	int first = !(flow->flags & TRIP_SAMPLED);

	flow->latest = sample;
	if (first || sample < flow->least)
		flow->least = sample;
	set_smoothed(flow, first ? sample : (smoothed(flow) * 7 + sample) / 8);
	flow->flags |= TRIP_SAMPLED;
}

// Header prediction may take the ACK that ends a timed round trip. At high rates only the first segment of each TSval is timed, which
// is always looked at.
INLINE int may_be_timed(const struct flow *flow, const struct packet *packet)
{
	const struct half_core *own = &flow->outgoing;
	int has_stamps = own->flags & HALF_LAST && own->flags & HALF_LAST_STAMPS;
	int is_first = !has_stamps || !packet->has_stamps || own->last_val != packet->val;

	return is_first || !(flow->incoming.flags & HALF_FAST);
}

INLINE void time_outgoing(struct flow *flow, const struct packet *packet)
{
	u32 len = seq_len(packet);

	if (packet->has_stamps && !(flow->flags & TRIP_STAMPED)) {
		flow->flags |= TRIP_STAMPED;
		flow->stamped = packet->val;
		flow->stamped_at = packet->now;
	}
	if (!len)
		return;
	u32 end = packet->seq + len;

	// Karn's rule: a retransmission measures nothing (RFC 6298 section 3).
	if (flow->flags & TRIP_NXT && before(packet->seq, flow->nxt)) {
		flow->flags &= ~TRIP_TIMED;
	} else if (!(flow->flags & TRIP_TIMED) && may_be_timed(flow, packet)) {
		flow->flags |= TRIP_TIMED;
		flow->timed = end;
		flow->timed_at = packet->now;
	}
	flow->nxt = flow->flags & TRIP_NXT ? later(flow->nxt, end) : end;
	flow->flags |= TRIP_NXT;
}

INLINE void time_incoming(struct flow *flow, const struct packet *packet)
{
	const struct half_core *acks = &flow->incoming;

	// Header prediction took the ACK that ends it: its time is unknown.
	if (flow->flags & TRIP_TIMED && acks->flags & HALF_ACKED && !before(acks->acked, flow->timed))
		flow->flags &= ~TRIP_TIMED;
	if (flow->flags & TRIP_TIMED && !before(packet->ack, flow->timed)) {
		flow->flags &= ~TRIP_TIMED;
		sample(flow, since(packet->now, flow->timed_at));
	}
	if (flow->flags & TRIP_STAMPED && packet->has_stamps) {
		int ahead = (int)(packet->ecr - flow->stamped);

		if (ahead >= 0)
			flow->flags &= ~TRIP_STAMPED;
		// A peer that was silent in between may have had nothing to send, so its echo is late.
		if (ahead == 0 && heard_at(flow) >= flow->stamped_at && packet->len)
			sample(flow, since(packet->now, flow->stamped_at));
	}
	set_heard(flow);
}
