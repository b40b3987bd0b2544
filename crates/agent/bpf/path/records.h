// The layout of the records that the programs share with the agent beside those of the flow path (crates/flow/c/state.h). build.rs reads this
// file and writes the same in Rust: one declaration a line, sizes as numbers or as constants of this file.

#pragma once

#include "types.h"

// Bytes of the longest one: a full segment over Ethernet.
#define COPY_MOST 1500

// A copy of a segment that the host has sent. That of a short packet ends earlier.
struct sent_copy {
	u16 len;               // of the packet
	u16 is_retransmission; // the host has sent its data before
	u8 bytes[COPY_MOST];   // the packet, from the IP header on
};
