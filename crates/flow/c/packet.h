// A TCP segment as the decisions see it, and their verdict on it. build.rs writes the same in Rust.

#pragma once

#include "state.h"

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define PSH 0x08
#define ACK 0x10

struct packet {
	u64 now;
	u32 seq, ack;
	u32 val, ecr;     // of the timestamps option, if `has_stamps`
	u32 len;          // bytes of data
	u32 segment_size; // bytes of each segment if there are several in one; 0 otherwise
	u16 window;
	u8 flags;
	u8 ttl, traffic_class;
	u8 window_scale;  // of a SYN; UNKNOWN_SHIFT without the option
	u8 has_stamps;
	u8 sack_len;      // SACK blocks
	u8 says_more;     // there is an option that no later ACK repeats
	u8 is_plain;      // flags are ACK, maybe PSH; no IP options; two no-operations and timestamps (RFC 7323 appendix A)
	u8 unused[6];
	struct block sack[MOST_BLOCKS];
};

// The changes to a packet, and its fate.
struct verdict {
	u32 ack;        // if `lower`: SACK blocks go, too
	u32 ecr;        // if `refresh`
	u32 notice_ack; // if `notice`
	u16 window;     // if `window_changed`
	u8 withhold, lower, window_changed, refresh;
	u8 shrink;      // the window was shrunk before a cut
	u8 notice;      // NOTICE_*, or 0
	u8 advances;    // it acknowledges more than any before
	u8 limit;       // the window was limited by order
	u8 probe;       // it asks for a window that is shut
	u8 unused;
};

INLINE u32 seq_len(const struct packet *packet)
{
	return packet->len + !!(packet->flags & SYN) + !!(packet->flags & FIN);
}

// Bytes of each segment in a packet of `len` bytes of data.
INLINE u32 size_of_segments(u32 size, u32 len)
{
	return !size || size >= len ? len : size;
}
