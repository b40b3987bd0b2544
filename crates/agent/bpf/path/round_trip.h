// Round-trip samples from handshakes, ACKs and echoed timestamps (RFC 6298, RFC 7323).

#pragma once

INLINE void sample(struct connection *connection, u64 sample)
{
	int first = !(connection->flags & TRIP_SAMPLED);

	connection->latest = sample;
	if (first || sample < connection->least)
		connection->least = sample;
	connection->smoothed = first ? sample : (connection->smoothed * 7 + sample) / 8;
	connection->flags |= TRIP_SAMPLED;
}

// The end of what is timed has to be looked at. At high rates, what is timed is what is looked at anyway.
INLINE int may_be_timed(const struct connection *connection, const struct packet *packet)
{
	const struct half *own = &connection->outgoing;
	int has_said = own->flags & HALF_SAID && own->flags & HALF_SAID_STAMPS;
	int is_first = !has_said || !packet->stamps_at || own->said_val != packet->val;

	return is_first || !(connection->incoming.flags & HALF_FAST);
}

INLINE void trip_outgoing(struct connection *connection, const struct packet *packet)
{
	u32 len = seq_len(packet);

	if (packet->stamps_at && !(connection->flags & TRIP_STAMPED)) {
		connection->flags |= TRIP_STAMPED;
		connection->stamped = packet->val;
		connection->stamped_at = packet->now;
	}
	if (!len)
		return;
	u32 end = packet->seq + len;

	if (connection->flags & TRIP_NXT && before(packet->seq, connection->nxt)) {
		connection->flags &= ~TRIP_TIMED;
	} else if (!(connection->flags & TRIP_TIMED) && may_be_timed(connection, packet)) {
		connection->flags |= TRIP_TIMED;
		connection->timed = end;
		connection->timed_at = packet->now;
	}
	connection->nxt = connection->flags & TRIP_NXT ? later(connection->nxt, end) : end;
	connection->flags |= TRIP_NXT;
}

INLINE void trip_incoming(struct connection *connection, const struct packet *packet)
{
	const struct half *acks = &connection->incoming;

	// Its end went by unseen: when, nobody knows.
	if (acks->flags & HALF_ACKED && !before(acks->acked, connection->timed))
		connection->flags &= ~TRIP_TIMED;
	if (connection->flags & TRIP_TIMED && !before(packet->ack, connection->timed)) {
		connection->flags &= ~TRIP_TIMED;
		sample(connection, since(packet->now, connection->timed_at));
	}
	if (connection->flags & TRIP_STAMPED && packet->stamps_at) {
		int ahead = (int)(packet->ecr - connection->stamped);

		if (ahead >= 0)
			connection->flags &= ~TRIP_STAMPED;
		if (ahead == 0 && connection->heard_at >= connection->stamped_at && packet->len)
			sample(connection, since(packet->now, connection->stamped_at));
	}
	connection->heard_at = packet->now;
}
