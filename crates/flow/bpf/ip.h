// Reads IP headers, for all programs alike: addresses, and which protocol they carry where, behind IPv4 options and IPv6 extension headers.
// parse.h reads TCP completely. `wire` reads the same in user space.

#pragma once

#include "kernel.h"

#include "types.h"

// Offset and more-fragments flag, in host byte order: without "don't fragment" and the reserved flag of IPv4's header; in the fragment header.
#define IP_FRAGMENT 0x3fff
#define IPV6_FRAGMENT 0xfff9

// Longer chains of extension headers, which no host uses, are not followed.
#define MOST_EXTENSIONS 6

// Where a TCP header has its flags (RFC 9293 section 3.1); the window follows.
#define TCP_FLAGS 13

#define AT(header, member) __builtin_offsetof(struct header, member)

// The upper-layer protocol of an IP packet.
struct upper {
	u32 at;      // where its header begins, in the frame
	u8 protocol; // of a fragment: the protocol of the whole packet
	u8 has_extensions;
	u8 unused[2];
};

#define UPPER_WHOLE 0
#define UPPER_FRAGMENT 1  // the header of `protocol` may be in another one
#define UPPER_UNKNOWN 2   // too many extension headers, a routing header with segments left, or not IP
#define UPPER_MALFORMED 3

// The beginning of an IPv4 header, up to the protocol: the stack has no room for the whole header.
struct ip_start {
	u8 version_and_len;
	u8 unused[5];
	u16 fragment;
	u8 ttl;
	u8 protocol;
};

INLINE int pass_ipv4(u8 version_and_len, u16 fragment, u8 protocol, struct upper *upper)
{
	u32 words = version_and_len & 15;

	if (version_and_len >> 4 != 4 || words < 5)
		return UPPER_MALFORMED;
	upper->protocol = protocol;
	upper->at += words * 4;
	return fragment & bpf_htons(IP_FRAGMENT) ? UPPER_FRAGMENT : UPPER_WHOLE;
}

INLINE int is_extension(u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_ROUTING || protocol == IPPROTO_FRAGMENT;
}

// Moves `upper` from the first extension header (RFC 8200 section 4) behind the last one.
INLINE int follow_extensions(struct __sk_buff *skb, struct upper *upper)
{
	u32 at = upper->at;
	u8 protocol = upper->protocol;

	upper->has_extensions = 1;
#pragma clang loop unroll(disable)
	for (int n = 0; n < MOST_EXTENSIONS; n++) {
		u8 header[8];

		if (!is_extension(protocol))
			break;
		if (bpf_skb_load_bytes(skb, at, header, sizeof(header)))
			return UPPER_MALFORMED;
		// With segments left, the destination address is not that of the final destination.
		if (protocol == IPPROTO_ROUTING && header[3])
			return UPPER_UNKNOWN;
		if (protocol == IPPROTO_FRAGMENT) {
			u32 fragment = (u32)header[2] << 8 | header[3];

			upper->protocol = header[0];
			// RFC 6946: a fragment with offset 0 and no more-fragments flag is a whole packet.
			if (fragment & IPV6_FRAGMENT)
				return UPPER_FRAGMENT;
			at += 8;
		} else {
			at += 8 + header[1] * 8;
		}
		protocol = header[0];
	}
	upper->at = at;
	upper->protocol = protocol;
	return is_extension(protocol) ? UPPER_UNKNOWN : UPPER_WHOLE;
}

// The same as a global function, which verifiers check by itself, once; its arguments must be initialised.
__attribute__((noinline)) int pass_extensions(struct __sk_buff *skb, struct upper *upper)
{
	return upper ? follow_extensions(skb, upper) : UPPER_UNKNOWN;
}

// Finds the upper-layer protocol of the packet whose IP header is at `at` in the frame. Returns UPPER_*. This global function calls no
// other: the deepest call chains leave no room for one more frame on the stack of 512 bytes.
__attribute__((noinline)) int read_upper(struct __sk_buff *skb, u32 at, struct upper *upper)
{
	if (!upper)
		return UPPER_UNKNOWN;
	upper->at = at;
	upper->protocol = 0;
	upper->has_extensions = 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct ip_start ip;

		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
			return UPPER_MALFORMED;
		return pass_ipv4(ip.version_and_len, ip.fragment, ip.protocol, upper);
	}
	if (skb->protocol != bpf_htons(ETH_P_IPV6))
		return UPPER_UNKNOWN;
	if (bpf_skb_load_bytes(skb, at + AT(ipv6hdr, nexthdr), &upper->protocol, 1))
		return UPPER_MALFORMED;
	upper->at += sizeof(struct ipv6hdr);
	return is_extension(upper->protocol) ? follow_extensions(skb, upper) : UPPER_WHOLE;
}

// Reads an address of the IP header at `at`: the destination, or else the source. An IPv4 address is mapped to ::ffff:0:0/96. Returns
// whether there is one.
INLINE int read_ip_address(struct __sk_buff *skb, u32 at, u32 *words, int is_destination)
{
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		words[0] = words[1] = 0;
		words[2] = bpf_htonl(0xffff);
		return !bpf_skb_load_bytes(skb, at + (is_destination ? AT(iphdr, daddr) : AT(iphdr, saddr)), &words[3], 4);
	}
	return skb->protocol == bpf_htons(ETH_P_IPV6) &&
	       !bpf_skb_load_bytes(skb, at + (is_destination ? AT(ipv6hdr, daddr) : AT(ipv6hdr, saddr)), words, 16);
}
