// Mode `thesis`: mobile hosts predict their absence by a sign in their packets, as Freeze-TCP does, and show by another one that the link
// works. User space gets a notice of each warning, and, while packets are diverted, of each sign that the link works: it releases packets
// with them.

#pragma once

#include "ip.h"
#include "state.h"

// Set when the programs are loaded: SIGN_BY_*; 0 without mode `thesis`.
const volatile u32 sign_kind = 0;

// Networks of mobile hosts in mode `thesis` (1) and in others (0): the longest prefix applies.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct network_key);
	__type(value, u32);
} thesis_networks SEC(".maps");

INLINE int gives_signs(const struct address *address)
{
	return value_of_network(&thesis_networks, address) != 0;
}

#define IP_RESERVED 0x8000

// Clears the reserved flag of an IPv4 header. Returns whether it was set.
static __attribute__((noinline)) int take_flag(struct __sk_buff *skb)
{
	u32 at = rules.frame_len;
	u16 old, new;

	if (bpf_skb_load_bytes(skb, at + 6, &old, sizeof(old)) || !(old & bpf_htons(IP_RESERVED)))
		return 0;
	new = old & ~bpf_htons(IP_RESERVED);
	bpf_l3_csum_replace(skb, at + 10, old, new, sizeof(new));
	bpf_skb_store_bytes(skb, at + 6, &new, sizeof(new), 0);
	return 1;
}

// The sign of a packet with TCP in the clear: its window.
static __attribute__((noinline)) u32 sign_by_window(struct __sk_buff *skb)
{
	struct upper upper = {};
	u8 bytes[3]; // flags and window

	if (read_upper(skb, rules.frame_len, &upper) != UPPER_WHOLE || upper.protocol != IPPROTO_TCP)
		return SIGN_NONE;
	if (bpf_skb_load_bytes(skb, upper.at + TCP_FLAGS, bytes, sizeof(bytes)) || (bytes[0] & (SYN | RST | ACK)) != ACK)
		return SIGN_NONE;
	return bytes[1] | bytes[2] ? SIGN_WORKING : SIGN_WARNING;
}

// The sign of a packet of a mobile host, which leaves without the flag. Without it, packets of any protocol show that the link works: with
// encryption nothing else is visible. IPv6 has no such flag.
INLINE u32 take_sign(struct __sk_buff *skb)
{
	if (sign_kind == SIGN_BY_WINDOW)
		return sign_by_window(skb);
	if (skb->protocol != bpf_htons(ETH_P_IP))
		return SIGN_NONE;
	return take_flag(skb) ? SIGN_WARNING : SIGN_WORKING;
}

// Reads the sign of a packet of a mobile host, and notifies user space.
INLINE void note_sign(struct __sk_buff *skb, struct mobile *mobile, const struct address *address, u64 now)
{
	u32 sign = take_sign(skb);

	if (sign == SIGN_NONE)
		return;
	if (sign == SIGN_WARNING && mobile->sign == SIGN_WARNING && now - mobile->signed_at < NOTICE_EVERY)
		return;
	// The first one after a warning counts in any case: user space may not have diverted packets yet.
	if (sign == SIGN_WORKING && mobile->sign != SIGN_WARNING && mobile->course == PASSING)
		return;
	struct mobile_notice *notice = bpf_ringbuf_reserve(&notices, sizeof(*notice), 0);

	if (!notice) {
		count(NOTICE_LOST);
		return;
	}
	mobile->sign = sign;
	mobile->signed_at = now;
	notice->at = now;
	notice->address = *address;
	notice->sign = sign;
	notice->unused = 0;
	bpf_ringbuf_submit(notice, 0);
}

// Whether a packet is TCP, or a fragment of it.
INLINE int is_tcp(struct __sk_buff *skb)
{
	struct upper upper = {};

	return read_upper(skb, rules.frame_len, &upper) <= UPPER_FRAGMENT && upper.protocol == IPPROTO_TCP;
}
