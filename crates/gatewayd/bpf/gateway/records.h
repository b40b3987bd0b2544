// The layout of everything that the gateway's programs share with user space beside the flow path (crates/flow/c/state.h). build.rs reads
// this file and writes the same in Rust: one declaration a line, sizes as numbers or as constants of this file.

#pragma once

#include "course.h"
#include "packet.h"
#include "selector.h"

// Counted beside `enum counter` of the flow path.
enum mobile_counter {
	PASSED = COUNTERS, // packets to known mobile hosts that were left alone
	DIVERTED,          // packets that were diverted
	EXPIRED,           // packets that were left alone because user space hangs
	RELEASED,          // packets that user space has sent
	HEARD,             // packets from known mobile hosts
	FULL,              // packets of mobile hosts for which there was no room
	SPLIT_SYN,         // SYNs that the daemon decides about (mode `split`)
	SPLIT_EXPIRED,     // SYNs that were left alone because user space hangs, or is gone
	SPLIT_FRAGMENT,    // TCP fragments of mobile hosts in mode `split`
	NO_ENTRY,          // of ALONE_FULL: without room for an entry, and not for details
	MOBILE_COUNTERS,
};

// An IPv6 address, or an IPv4 address mapped into one (RFC 4291 section 2.5.5.2), in the order of the network.
struct address {
	u32 words[4];
};

struct mac {
	u16 words[3];
	u16 unused;
};

// How mobile hosts in mode `thesis` predict an absence (the thesis on Freeze-TCP, section 4.6.2).
#define SIGN_BY_WINDOW 1 // by an ACK with a window of zero
#define SIGN_BY_FLAG 2   // by the reserved flag of IPv4's header

// The sign in a packet of such a host.
#define SIGN_NONE 0
#define SIGN_WARNING 1 // it predicts its absence
#define SIGN_WORKING 2 // its link works

// Links to a mobile host, as its flows see them: that of its own mode, and those of modes that rules for single connections choose.
// `expires_at` is that of all.
#define OWN_LINK 0
#define LINKS 4
#define NO_LINK 4 // of a flow for whose ACKs nothing is done

struct mobile {
	struct bpf_spin_lock lock; // of `course` with `diverted`, of `mac` and of `links`
	u32 course;        // of course.h
	u64 diverted;      // packets, since the mobile host is known
	u64 heard_at;      // the last packet from it
	u64 addressed_at;  // the last one of these in a frame to this router's own Ethernet address
	u64 waiting_since; // the first packet to it since it was heard; 0 if there was none
	u64 noticed_at;
	u64 signed_at;  // the last sign that user space was told,
	u32 sign;       // which is SIGN_*
	u32 unused;
	struct mac mac; // of the frame of the last packet from it
	u64 arrival_noticed_at;
	u64 connected_at; // when the last entry for a connection of it was added
	struct link links[LINKS];
};

// A packet came from a mobile host whose packets are diverted, or one with a sign.
struct mobile_notice {
	u64 at;
	struct address address;
	u32 sign; // SIGN_*
	u32 unused;
};

struct mobile_order {
	struct address address;
	u64 diverted; // of MOBILE_COURSE with PASSING: refused unless exactly so many packets were diverted
	u32 course;
	u32 kind;
	u32 number; // of MOBILE_LINK
	u32 unused;
	struct link link; // of MOBILE_LINK
};

#define MOBILE_COURSE 0
#define MOBILE_LINK 1

// A rule for single connections: *local* is the end of the fixed host. Rules are in the order in which they are tried.
#define MOST_FLOW_RULES 128

struct flow_rule {
	struct selector selector;
	u32 verdict; // RULE_* here and in course.h, and the number of a link
};

#define RULE_LINK 0x7 // the bits of the number
#define RULE_SPLITS 0x20  // the connection ends at the gateway

// The connections of a mobile host that end at the gateway: all except those excluded by a rule, or only those chosen by a rule.
#define SPLIT_ALL 1
#define SPLIT_CHOSEN 2

// Set when the programs are loaded: the index of the daemon's TUN device for SYNs, 0 without mode `split`; the mark with which packets are
// routed to this host; the ports of the listening sockets on the loopback addresses, in the order of the network, for SYNs of mobile hosts
// and of others.
struct split_setup {
	u32 device;
	u32 mark;
	u16 from_mobiles[2]; // IPv4, IPv6
	u16 from_others[2];
};
