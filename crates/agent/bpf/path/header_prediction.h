// Header prediction: packets of a fast transfer that say nothing new are noted in one cache line, without a lock.

#pragma once

// Both begin with a word: as `KEY` has them, and the lines of `bulks`, and orders.
INLINE int is_same(const struct key *one, const struct key *other)
{
	const u64 *ours = (const u64 *)one, *theirs = (const u64 *)other;
	u64 differs = (one->local_port ^ other->local_port) | (one->remote_port ^ other->remote_port);

#pragma unroll
	for (u32 n = 0; n < 2 * sizeof(one->local) / 8; n++)
		differs |= ours[n] ^ theirs[n];
	return !differs;
}

// The number of the line of a connection's packets in `direction`, in `bulks`; that of the other direction is its neighbour.
INLINE u32 bulk_number(const struct key *key, int direction)
{
	u32 mixed = *(const u32 *)(key->local + 12) ^ *(const u32 *)(key->remote + 12);

	mixed ^= (u32)key->local_port << 16 | key->remote_port;
	return (mixed * 0x9e3779b1u >> (32 - BULK_PLACES_BITS)) << 1 | direction;
}

INLINE u32 kind_of(u32 state)
{
	return state & BULK_KIND;
}

INLINE int goes_on_as(const struct bulk *bulk, const struct key *key)
{
	return kind_of(bulk->state) >= BULK_DATA && is_same(&bulk->key, key);
}

// A TCP header with the usual options.
struct plain {
	u16 ports[2];
	u32 seq, ack;
	u16 offset_and_flags, window, checksum, urgent;
	u32 options, val, ecr;
};

// The TCP header of a plain segment, as `is_plain` has it; 0 if it is none, or not where it can be read at once.
INLINE const struct plain *plain_segment(const struct __sk_buff *skb, u32 frame_len, struct key *key, int direction, u32 *len)
{
	const u8 *ip = (const u8 *)(long)skb->data + frame_len, *end = (const u8 *)(long)skb->data_end;
	u8 *source = direction == OUTGOING ? key->local : key->remote;
	u8 *destination = direction == OUTGOING ? key->remote : key->local;
	const struct plain *tcp;
	u32 total;

	if (skb->vlan_present)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		const struct iphdr *header = (const struct iphdr *)ip;

		tcp = (const struct plain *)(header + 1);
		if ((const u8 *)(tcp + 1) > end || ip[0] != 0x45 || header->protocol != IPPROTO_TCP ||
		    header->frag_off & bpf_htons(0x3fff))
			return 0;
		total = bpf_ntohs(header->tot_len);
		*len = total - sizeof(*header) - sizeof(*tcp);
		source[10] = source[11] = destination[10] = destination[11] = 0xff;
		__builtin_memcpy(source + 12, &header->saddr, 4);
		__builtin_memcpy(destination + 12, &header->daddr, 4);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		const struct ipv6hdr *header = (const struct ipv6hdr *)ip;

		tcp = (const struct plain *)(header + 1);
		if ((const u8 *)(tcp + 1) > end || header->nexthdr != IPPROTO_TCP)
			return 0;
		total = bpf_ntohs(header->payload_len) + sizeof(*header);
		*len = total - sizeof(*header) - sizeof(*tcp);
		__builtin_memcpy(source, &header->saddr, 16);
		__builtin_memcpy(destination, &header->daddr, 16);
	} else {
		return 0;
	}
	// A length of less than the headers is far beyond all that there is.
	if (*len > 0xffff || frame_len + total > skb->len)
		return 0;
	if ((tcp->offset_and_flags & ~bpf_htons(PSH)) != bpf_htons(USUAL_OFFSET << 8 | ACK) || tcp->options != bpf_htonl(USUAL_OPTIONS))
		return 0;
	*(direction == OUTGOING ? &key->local_port : &key->remote_port) = tcp->ports[0];
	*(direction == OUTGOING ? &key->remote_port : &key->local_port) = tcp->ports[1];
	return tcp;
}

// Whether what an ACK says to have received has come by. The line of the data, `across`, which another processor may be writing to,
// is looked at only for what is beyond what it said last.
INLINE int has_come_by(struct bulk *acks, u32 across, u32 ack)
{
	if (!before(*(volatile u32 *)&acks->most, ack))
		return 1;
	const struct bulk *data = kind_of(acks->state) == BULK_ACKS ? bpf_map_lookup_elem(&bulks, &across) : 0;

	if (!data || kind_of(data->state) != BULK_DATA || !is_same(&data->key, &acks->key))
		return 0;
	u32 next = *(volatile u32 *)&data->next;

	if (before(next, ack))
		return 0;
	// If another processor has set another bound at this very moment, that is lost: an ACK goes by unseen, and what it ends is timed no
	// more. To have it otherwise, each such ACK would wait for the line.
	*(volatile u32 *)&acks->most = next;
	return 1;
}

// Whether timestamps go on from those that were noted, within those few ticks in which nothing is looked at.
INLINE int ticks_on(u64 noted, u64 stamps, u32 state)
{
	u32 val = bpf_ntohl((u32)stamps), ecr = bpf_ntohl((u32)(stamps >> 32));
	u8 val_left = (state >> 8) - 1 - val, ecr_left = (state >> 16) - 1 - ecr;

	return val - bpf_ntohl((u32)noted) < BULK_TICKS && ecr - bpf_ntohl((u32)(noted >> 32)) < BULK_TICKS &&
	       val_left < BULK_TICKS && ecr_left < BULK_TICKS;
}

// Whether a packet only goes on as those before, which then is noted. A function of its own for the verifier, too, which then need
// not follow what it has found through all the rest.
//
// Packets of one direction come one after the other. If they ever come on two processors at once, a note may be lost: then the
// next packet does not fit and is looked at, and what was lost counts as a gap.
__attribute__((noinline)) int goes_on(struct __sk_buff *skb, int direction)
{
	KEY key = {};
	u64 turn = turn_now();
	u32 len;

	if (!is_calm(turn, family_of(skb)))
		return 0;
	const struct plain *tcp = plain_segment(skb, turn & TURN_FRAMES ? ETH_HLEN : 0, &key, direction, &len);

	if (!tcp)
		return 0;
	u32 number = bulk_number(&key, direction);
	struct bulk *bulk = bpf_map_lookup_elem(&bulks, &number);

	if (!bulk || !goes_on_as(bulk, &key))
		return 0;
	u32 state = bulk->state, seq = bpf_ntohl(tcp->seq);
	u64 stamps = (u64)tcp->ecr << 32 | tcp->val;

	if (seq != bulk->next || (stamps != bulk->stamps && !ticks_on(bulk->stamps, stamps, state)))
		return 0;
	// What follows is not to be loaded before: there is no room for it on the stack.
	asm volatile("" ::: "memory");
	u32 ack = bpf_ntohl(tcp->ack);
	u64 said = ack | (u64)bpf_ntohs(tcp->window) << 32;

	if (kind_of(state) == BULK_DATA) {
		u32 size = segment_size(skb->gso_size, len);

		if (!len || bulk->said << 16 != said << 16 || size > bulk->said >> 48)
			return 0;
		if (direction == INCOMING && before(bulk->most, seq + len))
			return 0;
		*(volatile u32 *)&bulk->next = seq + len;
	} else {
		if (len || !before((u32)bulk->said, ack) || !has_come_by(bulk, number ^ 1, ack))
			return 0;
		*(volatile u64 *)&bulk->said = said;
	}
	*(volatile u64 *)&bulk->stamps = stamps;
	count(direction == OUTGOING ? WENT_ON : WENT_ON_IN);
	return 1;
}

// Which ACKs were shown is not known one by one any more: as many as are remembered, at the time of the last that was looked at.
INLINE void forget_shown(struct half *half, u32 ack)
{
	u64 at = half->shown_len ? half->shown_lately[(half->shown_next - 1) & (MOST_SHOWN - 1)].at : 0;

#pragma unroll
	for (int n = 0; n < MOST_SHOWN; n++) {
		half->shown_lately[n].at = at;
		half->shown_lately[n].ack = ack;
	}
	half->shown_len = MOST_SHOWN;
}

// What went on is made good: whoever looks at a connection does this first, as often as he likes.
INLINE void fold(struct connection *connection, const struct bulk *bulk, const struct key *key, int direction)
{
	struct half *acks = direction == OUTGOING ? &connection->outgoing : &connection->incoming;
	struct half *data = direction == OUTGOING ? &connection->incoming : &connection->outgoing;

	if (!goes_on_as(bulk, key))
		return;
	int is_data = kind_of(bulk->state) == BULK_DATA;
	u64 stamps = *(volatile u64 *)&bulk->stamps;

	acks->said_val = bpf_ntohl((u32)stamps);
	acks->said_ecr = bpf_ntohl((u32)(stamps >> 32));
	if (is_data && data->runs_len) {
		struct run *last = &data->runs[(data->runs_len - 1) & (MOST_RUNS - 1)];
		u32 from = last->end, next = *(volatile u32 *)&bulk->next;

		if (!before(from, next))
			return;
		if (direction == OUTGOING) {
			connection->bytes_out += next - from;
			connection->nxt = later(connection->nxt, next);
		} else {
			connection->bytes_in += next - from;
		}
		last->end = next;
		acks->said_nxt = later(acks->said_nxt, next);
	} else if (!is_data && acks->flags & HALF_ACKED) {
		u64 said = *(volatile u64 *)&bulk->said;
		u32 ack = said;

		if (!before(acks->acked, ack))
			return;
		if (direction == OUTGOING)
			forget_shown(acks, ack);
		acks->bytes_acked += ack - acks->acked;
		acks->acked = acks->said_ack = ack;
		acks->said_window = said >> 32;
		acks->shown = later(acks->shown, ack);
	}
}

INLINE void stop_bulk(struct bulk *bulk, const struct key *key)
{
	if (goes_on_as(bulk, key))
		__sync_lock_test_and_set(&bulk->state, BULK_IDLE);
}

// Whoever claims a line that is free writes his key: until then it is nobody's.
INLINE void free_bulk(struct bulk *bulk, const struct key *key)
{
	if (!is_same(&bulk->key, key))
		return;
	__builtin_memset(&bulk->key, 0, sizeof(bulk->key));
	__sync_lock_test_and_set(&bulk->state, BULK_FREE);
}

// How far ACKs, or data that comes in, may go on.
INLINE void bound_bulk(const struct connection *connection, struct bulk *bulk, u32 state, int direction)
{
	const struct half *acks = direction == OUTGOING ? &connection->outgoing : &connection->incoming;
	u32 ticks = state & ~BULK_KIND;

	if (kind_of(state) == BULK_DATA) {
		const struct half *own = &connection->outgoing;

		bulk->most = own->acked + ((u32)own->said_window << shift_or(own, 14));
	} else if (direction == INCOMING && connection->flags & TRIP_TIMED) {
		bulk->most = connection->timed - 1;
		state = ticks | BULK_TIMED;
	} else {
		bulk->most = runs_end(acks);
		state = ticks | BULK_ACKS;
	}
	// The last that is written, and all at once for whoever sees it: what goes on has to fit all the rest, too.
	__sync_lock_test_and_set(&bulk->state, state);
}

INLINE int is_quiet(const struct half *half, const struct link *link, u64 now)
{
	u32 busy = HALF_DRAWN_IN | HALF_RECORDING | HALF_CLOCKED | HALF_RESET;

	return !(half->flags & busy) && !half->flush_at && !half->sack_len && !is_held(half) && !refreshes(half, link, now);
}

// What would have to go on for packets like this one not to be looked at; BULK_IDLE if all are to be.
INLINE u32 begins_bulk(const struct connection *connection, const struct link *link, const struct packet *packet,
		       const struct verdict *verdict, int direction)
{
	const struct half *acks = direction == OUTGOING ? &connection->outgoing : &connection->incoming;
	const struct half *data = direction == OUTGOING ? &connection->incoming : &connection->outgoing;
	u32 said = HALF_ACKED | HALF_SAID | HALF_SAID_STAMPS;
	u32 end = packet->seq + packet->len;

	if (verdict->withhold || verdict->lower || verdict->window_changed || verdict->notice || verdict->ecr != packet->ecr)
		return BULK_IDLE;
	if ((acks->flags & said) != said || (acks->flags | data->flags) & HALF_ENDING || !is_quiet(acks, link, packet->now))
		return BULK_IDLE;
	if (acks->acked != packet->ack || acks->said_ack != packet->ack || acks->said_window != packet->window ||
	    acks->said_nxt != end || acks->said_val != packet->val || acks->said_ecr != packet->ecr)
		return BULK_IDLE;
	if (!packet->len)
		return verdict->advances && acks->flags & HALF_FAST && acks->runs_len ? BULK_ACKS : BULK_IDLE;
	if (!(data->flags & HALF_FAST) || !data->runs_len)
		return BULK_IDLE;
	if (direction == INCOMING && (connection->outgoing.flags & (HALF_ACKED | HALF_SAID)) != (HALF_ACKED | HALF_SAID))
		return BULK_IDLE;
	const struct run *last = &data->runs[(data->runs_len - 1) & (MOST_RUNS - 1)];
	int is_whole = last->end == end && last->size == data->longest_segment && last->size <= 0xffff;

	return is_whole ? BULK_DATA : BULK_IDLE;
}

// The timestamps at which a packet is looked at again, as the state of a line has them: those of a few ticks later, or the echo by which
// the round trip of data that comes in is measured.
INLINE u32 ends_at(const struct connection *connection, const struct packet *packet, u32 state, int direction)
{
	u32 val = packet->val + BULK_TICKS, ecr = packet->ecr + BULK_TICKS;

	if (direction == INCOMING && state == BULK_DATA && connection->flags & TRIP_STAMPED && before(connection->stamped, ecr))
		ecr = connection->stamped;
	return (val & 0xff) << 8 | (ecr & 0xff) << 16;
}

// After a packet was looked at: whether those that follow have to be.
INLINE void settle_bulk(struct connection *connection, const struct link *link, const struct key *key,
			const struct packet *packet, const struct verdict *verdict, struct bulk *own, struct bulk *other,
			int is_calm, int direction)
{
	int only_acknowledges = (packet->flags & ~PSH) == ACK;
	// Whether data flows in while an echo is waited for is known only if the next is looked at.
	int begins_to_wait = direction == OUTGOING && connection->flags & TRIP_STAMPED && connection->stamped_at == packet->now;

	if (!only_acknowledges || (begins_to_wait && kind_of(other->state) == BULK_DATA)) {
		// It may have gone on since it was folded, on another processor.
		fold(connection, other, key, !direction);
		stop_bulk(other, key);
	}
	if (!only_acknowledges) {
		stop_bulk(own, key);
		return;
	}
	int may_begin = packet->is_plain && is_calm;
	u32 state = may_begin ? begins_bulk(connection, link, packet, verdict, direction) : BULK_IDLE;

	if (state != BULK_IDLE && __sync_val_compare_and_swap(&own->state, BULK_FREE, BULK_IDLE) == BULK_FREE)
		own->key = *key;
	if (state == BULK_IDLE) {
		stop_bulk(own, key);
	} else if (is_same(&own->key, key)) {
		stop_bulk(own, key);
		own->next = packet->seq + packet->len;
		own->said = packet->ack | (u64)packet->window << 32;
		if (state == BULK_DATA)
			own->said |= (u64)(direction == OUTGOING ? &connection->incoming : &connection->outgoing)->longest_segment << 48;
		own->stamps = (u64)bpf_htonl(packet->ecr) << 32 | bpf_htonl(packet->val);
		bound_bulk(connection, own, state | ends_at(connection, packet, state, direction), direction);
	}
	if (goes_on_as(other, key))
		bound_bulk(connection, other, other->state, !direction);
}
