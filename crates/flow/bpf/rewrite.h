// Carries out a verdict on a packet that passes, and keeps its checksum right.

#pragma once

#include "parse.h"

#define TCP_ACK 8
#define TCP_WINDOW 14
#define TCP_CHECKSUM 16

INLINE void replace_u32(struct __sk_buff *skb, u32 tcp_at, u32 at, u32 from, u32 to)
{
	u32 old = bpf_htonl(from), new = bpf_htonl(to);

	bpf_l4_csum_replace(skb, tcp_at + TCP_CHECKSUM, old, new, 4);
	bpf_skb_store_bytes(skb, at, &new, 4, 0);
}

// Replaces a SACK option by no-operations: above a lowered ACK its blocks would report the held data as lost. A global
// function, which verifiers check once for all that call it.
__attribute__((noinline)) int blank_sack(struct __sk_buff *skb, u32 tcp_at, u32 at, u32 bytes)
{
	for (u32 n = 0; n < 34; n += 2) {
		u8 old[2];
		u8 new[2] = { OPTION_NOP, OPTION_NOP };

		if (n >= bytes || bpf_skb_load_bytes(skb, at + n, old, 2))
			return 0;
		// The checksum is over words: at an odd offset the bytes are swapped.
		u16 from = (at - tcp_at) & 1 ? (u16)old[0] << 8 | old[1] : (u16)old[1] << 8 | old[0];

		bpf_l4_csum_replace(skb, tcp_at + TCP_CHECKSUM, from, 0x0101, 2);
		bpf_skb_store_bytes(skb, at + n, new, 2, 0);
	}
	return 0;
}

INLINE void replace_echo(struct __sk_buff *skb, const struct offsets *offsets, u32 from, u32 to)
{
	u32 at = offsets->stamps + 4;

	if (((at - offsets->tcp) & 1) == 0) {
		replace_u32(skb, offsets->tcp, at, from, to);
		return;
	}
	// The checksum is over words: at an odd offset the bytes are swapped.
	u32 old = bpf_htonl(from), new = bpf_htonl(to);
	u32 old_words = (old & 0x00ff00ff) << 8 | (old & 0xff00ff00) >> 8;
	u32 new_words = (new & 0x00ff00ff) << 8 | (new & 0xff00ff00) >> 8;

	bpf_l4_csum_replace(skb, offsets->tcp + TCP_CHECKSUM, old_words, new_words, 4);
	bpf_skb_store_bytes(skb, at, &new, 4, 0);
}

INLINE void rewrite(struct __sk_buff *skb, const struct offsets *offsets, const struct packet *packet, const struct verdict *verdict)
{
	if (verdict->refresh && verdict->ecr != packet->ecr) {
		count(REFRESHED);
		replace_echo(skb, offsets, packet->ecr, verdict->ecr);
	}
	if (verdict->lower) {
		count(LOWERED);
		replace_u32(skb, offsets->tcp, offsets->tcp + TCP_ACK, packet->ack, verdict->ack);
		UNROLL
		for (int n = 0; n < MOST_BLOCKS; n++) {
			if (n < offsets->sacks)
				blank_sack(skb, offsets->tcp, offsets->sack[n], offsets->sack_bytes[n]);
		}
	}
	if (verdict->shrink)
		count(SHRUNK);
	if (verdict->limit)
		count(LIMITED);
	if (verdict->window_changed) {
		u16 old = bpf_htons(packet->window), new = bpf_htons(verdict->window);

		bpf_l4_csum_replace(skb, offsets->tcp + TCP_CHECKSUM, old, new, 2);
		bpf_skb_store_bytes(skb, offsets->tcp + TCP_WINDOW, &new, 2, 0);
	}
}
