// Rewriting a packet by its verdict, with its checksum.

#pragma once

#define TCP_ACK 8
#define TCP_WINDOW 14
#define TCP_CHECKSUM 16

INLINE void replace_u32(struct __sk_buff *skb, const struct packet *packet, u32 at, u32 from, u32 to)
{
	u32 old = bpf_htonl(from), new = bpf_htonl(to);

	bpf_l4_csum_replace(skb, packet->tcp_at + TCP_CHECKSUM, old, new, 4);
	bpf_skb_store_bytes(skb, at, &new, 4, 0);
}

// SACK blocks of an ACK that is lowered would say that what is held was lost: they give way to no-operations.
static __attribute__((noinline)) int blank_sack(struct __sk_buff *skb, u32 tcp_at, u32 at, u32 bytes)
{
	for (u32 n = 0; n < 34; n += 2) {
		u8 old[2];
		u8 new[2] = { 1, 1 };

		if (n >= bytes || bpf_skb_load_bytes(skb, at + n, old, 2))
			return 0;
		// In words of the checksum: what begins at an odd place has its bytes the other way round.
		u16 from = (at - tcp_at) & 1 ? (u16)old[0] << 8 | old[1] : (u16)old[1] << 8 | old[0];

		bpf_l4_csum_replace(skb, tcp_at + TCP_CHECKSUM, from, 0x0101, 2);
		bpf_skb_store_bytes(skb, at + n, new, 2, 0);
	}
	return 0;
}

INLINE void rewrite(struct __sk_buff *skb, const struct packet *packet, const struct verdict *verdict)
{
	if (verdict->refresh && verdict->ecr != packet->ecr) {
		count(REFRESHED);
		u32 at = packet->stamps_at + 4;

		if ((at - packet->tcp_at) & 1) {
			// Each byte is in the other half of its word.
			u32 old = bpf_htonl(packet->ecr), new = bpf_htonl(verdict->ecr);
			u32 from = (old & 0x00ff00ff) << 8 | (old & 0xff00ff00) >> 8;
			u32 to = (new & 0x00ff00ff) << 8 | (new & 0xff00ff00) >> 8;

			bpf_l4_csum_replace(skb, packet->tcp_at + TCP_CHECKSUM, from, to, 4);
			bpf_skb_store_bytes(skb, at, &new, 4, 0);
		} else {
			replace_u32(skb, packet, at, packet->ecr, verdict->ecr);
		}
	}
	if (verdict->lower) {
		count(LOWERED);
		replace_u32(skb, packet, packet->tcp_at + TCP_ACK, packet->ack, verdict->ack);
#pragma unroll
		for (int n = 0; n < MOST_BLOCKS; n++) {
			if (n < packet->sacks)
				blank_sack(skb, packet->tcp_at, packet->sack_at[n], packet->sack_bytes[n]);
		}
	}
	if (verdict->drawn_in)
		count(DRAWN_IN);
	if (verdict->window_changed) {
		u16 old = bpf_htons(packet->window), new = bpf_htons(verdict->window);

		bpf_l4_csum_replace(skb, packet->tcp_at + TCP_CHECKSUM, old, new, 2);
		bpf_skb_store_bytes(skb, packet->tcp_at + TCP_WINDOW, &new, 2, 0);
	}
}
