// Additions to flow.h for a shell between two hosts. To a gateway the *peer* is the mobile host, and the *host* is the other end, whose
// round trip is measured here. docs/mechanisms/hold_back.md describes its use.

#pragma once

#include "history.h"

// The shortest sample counts: the host may delay its ACKs.
INLINE void sample_beyond(struct flow *flow, u64 sample)
{
	if (!flow->beyond || sample < flow->beyond)
		flow->beyond = sample ? sample : 1;
	flow->flags |= TRIP_BEYOND;
}

// A segment of the peer is passed on to the host.
INLINE void time_to_host(struct flow *flow, const struct packet *packet)
{
	struct half data = half_of(flow, OUTGOING);
	u32 len = seq_len(packet);

	if (packet->has_stamps && !(flow->flags & TRIP_FAR_STAMPED)) {
		flow->flags |= TRIP_FAR_STAMPED;
		flow->far_stamped = packet->val;
		flow->far_stamped_at = packet->now;
	}
	if (!len)
		return;
	// Karn's rule: a retransmission measures nothing (RFC 6298 section 3).
	if (data.core->runs_len && before(packet->seq, runs_end(&data))) {
		flow->flags &= ~TRIP_FAR_TIMED;
	} else if (!(flow->flags & TRIP_FAR_TIMED)) {
		flow->flags |= TRIP_FAR_TIMED;
		flow->far_timed = packet->seq + len;
		flow->far_timed_at = packet->now;
	}
}

// A segment of the host has arrived.
INLINE void time_from_host(struct flow *flow, const struct packet *packet)
{
	if (flow->flags & TRIP_FAR_TIMED && packet->flags & ACK && !before(packet->ack, flow->far_timed)) {
		flow->flags &= ~TRIP_FAR_TIMED;
		sample_beyond(flow, since(packet->now, flow->far_timed_at));
	}
	if (flow->flags & TRIP_FAR_STAMPED && packet->has_stamps) {
		int ahead = (int)(packet->ecr - flow->far_stamped);

		if (ahead >= 0)
			flow->flags &= ~TRIP_FAR_STAMPED;
		if (ahead == 0)
			sample_beyond(flow, since(packet->now, flow->far_stamped_at));
	}
}

// To be called before handle_segment.
INLINE void time_beyond(struct flow *flow, const struct packet *packet, int direction)
{
	if (direction == INCOMING)
		time_to_host(flow, packet);
	else
		time_from_host(flow, packet);
}

// Whether a packet, of either end, begins another connection with the same addresses: a SYN, unless it is a retransmission. `stage` and
// `isn` are those of the flow or of its entry.
INLINE int begins_between(u16 stage, u32 isn, const struct packet *packet)
{
	int is_first = (packet->flags & (SYN | ACK | RST)) == SYN;

	return is_first && !(stage & STAGE_ISN && isn == packet->seq);
}

// Whether both ends have agreed on their numbers, and neither has ended. `flags` are those of both halves or sides.
INLINE int is_under_way(u16 stage, u32 flags)
{
	u16 ended = STAGE_HOST_FIN | STAGE_PEER_FIN;

	return flags & HALF_ACKED && !(stage & STAGE_RESET) && (stage & ended) != ended;
}

// The effect of a packet on the flow table of a node between two hosts. `stage`, `isn` and `flags` are those of the flow or entry of its
// key, if it `is_known`. Connections that are older than the table are learnt from any of their packets.
INLINE enum finding find_between(int is_known, u16 stage, u32 isn, u32 flags, const struct packet *packet)
{
	// A SYN from a stranger would change the numbers of a connection whose ends ignore it (RFC 5961 section 4).
	if (is_known && packet->flags & SYN && is_under_way(stage, flags))
		return FLOW_UNSEEN;
	if (is_known && !begins_between(stage, isn, packet))
		return FLOW_KNOWN;
	return packet->flags & RST ? FLOW_UNSEEN : FLOW_BEGINS;
}

// Whether a mobile host refuses a packet from the fixed side, which any host may have forged. (The core checks incoming packets in the same
// way.)
INLINE int is_refused(const struct flow *flow, const struct packet *packet)
{
	struct half data = half_of(flow, INCOMING);

	return is_beyond_window(&data, packet) || is_before_window(&data, packet);
}

// Notes the initial sequence number of the end that has opened the connection, for begins_between.
INLINE void note_opening(struct flow *flow, const struct packet *packet)
{
	if ((packet->flags & (SYN | ACK | RST)) == SYN) {
		flow->host_isn = packet->seq;
		flow->stage |= STAGE_ISN;
	}
}
