// The life cycle of a connection at a host: which packets begin and end flows, and the stage of a connection, for the owner of the flow
// table, which removes closed connections. between.h has the same for a node between two hosts.

#pragma once

#include "half.h"
#include "packet.h"

// Whether a packet of the host begins another connection with the same addresses: its SYN or SYN-ACK, unless it is a retransmission.
INLINE int begins_anew(const struct flow *flow, const struct packet *packet)
{
	return packet->flags & SYN && !(flow->stage & STAGE_ISN && flow->host_isn == packet->seq);
}

// Whether a flow is added to the table by this packet of the host. On a server, a flow is added once the host sends more than its
// SYN-ACK.
INLINE int begins_flow(const struct packet *packet)
{
	return !(packet->flags & RST) && !(packet->flags & SYN && packet->flags & ACK);
}

// The effect of a packet on the flow table of a host. `flow` is the flow of its key, 0 without one. Only packets of the host begin and end
// flows: any other host can forge the others.
INLINE enum finding find_at_host(const struct flow *flow, const struct packet *packet, int direction)
{
	if (direction == INCOMING) {
		int asks = (packet->flags & (SYN | ACK)) == SYN;

		// A SYN from a stranger would change the numbers of a connection whose ends ignore it (RFC 5961 section 4).
		if (!flow || (asks && (flow->incoming.flags | flow->outgoing.flags) & HALF_ACKED))
			return FLOW_UNSEEN;
		return FLOW_KNOWN;
	}
	if (flow && !begins_anew(flow, packet))
		return FLOW_KNOWN;
	if (begins_flow(packet))
		return FLOW_BEGINS;
	return flow ? FLOW_ENDS : FLOW_UNSEEN;
}

// To be called after note_seen, and last.
INLINE void note_stage(struct flow *flow, const struct packet *packet, int direction)
{
	u32 fin = packet->seq + seq_len(packet);

	struct half data = half_of(flow, !direction);

	count_bytes(&data, packet->len);
	if (direction == OUTGOING) {
		if (packet->flags & SYN && !(packet->flags & ACK)) {
			flow->host_isn = packet->seq;
			flow->stage |= STAGE_ISN;
		}
		if (packet->flags & FIN) {
			flow->host_fin = fin;
			flow->stage |= STAGE_HOST_FIN;
		}
		if (flow->stage & STAGE_PEER_FIN && packet->flags & ACK && !before(packet->ack, flow->peer_fin))
			flow->stage |= STAGE_PEER_FIN_ACKED;
		// A host that sends again has not accepted the reset.
		if (packet->flags & RST)
			flow->stage |= STAGE_RESET;
		else
			flow->stage &= ~STAGE_RESET;
	} else {
		if (packet->flags & FIN) {
			flow->peer_fin = fin;
			flow->stage |= STAGE_PEER_FIN;
		}
		if (flow->stage & STAGE_HOST_FIN && packet->flags & ACK && !before(packet->ack, flow->host_fin))
			flow->stage |= STAGE_HOST_FIN_ACKED;
		if (packet->flags & RST && flow->outgoing.flags & HALF_RESET)
			flow->stage |= STAGE_RESET;
	}
}
