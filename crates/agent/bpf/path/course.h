// How far a connection is: handshake, FINs, resets, bytes.

#pragma once

INLINE void follow(struct connection *connection, const struct packet *packet, int direction)
{
	u32 fin = packet->seq + seq_len(packet);

	connection->seen_at = packet->now;
	if (!connection->began_at)
		connection->began_at = packet->now;
	if (direction == OUTGOING) {
		connection->bytes_out += packet->len;
		if (packet->flags & SYN && !(packet->flags & ACK)) {
			connection->host_isn = packet->seq;
			connection->gone |= GONE_ISN;
		}
		if (packet->flags & FIN) {
			connection->host_fin = fin;
			connection->gone |= GONE_HOST_FIN;
		}
		if (connection->gone & GONE_PEER_FIN && packet->flags & ACK && !before(packet->ack, connection->peer_fin))
			connection->gone |= GONE_PEER_FIN_ACKED;
		if (packet->flags & RST)
			connection->gone |= GONE_RESET;
		else
			connection->gone &= ~GONE_RESET;
	} else {
		connection->bytes_in += packet->len;
		if (packet->flags & FIN) {
			connection->peer_fin = fin;
			connection->gone |= GONE_PEER_FIN;
		}
		if (connection->gone & GONE_HOST_FIN && packet->flags & ACK && !before(packet->ack, connection->host_fin))
			connection->gone |= GONE_HOST_FIN_ACKED;
		if (packet->flags & RST && connection->outgoing.flags & HALF_RESET)
			connection->gone |= GONE_RESET;
	}
}
