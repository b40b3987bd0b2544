// SPDX-License-Identifier: MIT OR GPL-2.0
//
// The layout of everything that the programs share with user space beside selectors (crates/flow/c/selector.h). build.rs reads this file
// and writes the same in Rust: one declaration a line, sizes as numbers or as constants of this file.

#pragma once

#include "selector.h"

#define MAX_RULES 128

enum action {
	LEAVE_ALONE,
	// The timeout is at least the kernel's own patience.
	HOLD,
	FAIL_FAST,
};

// The timeout that a rule, or user space, asks for a connection.
struct wish {
	__u32 timeout_ms;
	// The longest timeout that the peer's option may ask for.
	__u32 accept_ms;
	// The option that is sent, as on the wire; 0: options are neither sent nor accepted.
	__u16 advertise;
	__u8 action;
	// An application's own timeout is replaced.
	__u8 replace;
	// The rule's number.
	__u32 rule;
};

// An entry of the rule table: a rule has one for each combination of its addresses and ports.
struct rule {
	struct selector selector;
	struct wish wish;
	// The rule also asks for the owner: a match is reported to user space.
	__u8 needs_owner;
	__u8 unused[3];
};

// The timeout that was set on a socket, in the socket's local storage.
struct given {
	struct wish wish;
	// The value of `table_in_use` when the wish was looked up.
	__u32 generation;
	// The last timeout that this program set, in ms; 0 for none.
	__u32 set_ms;
	// The socket's timeout before that, in ms.
	__u32 before_ms;
	// The timeout that the peer's option asked for, in ms; 0 for none.
	__u32 peer_ms;
	// When the peer's window was first seen closed, in ns of CLOCK_MONOTONIC; 0 while it is open.
	__u64 shut_since;
	// The option is sent until this sequence number is acknowledged.
	__u32 advertised_to;
	__u8 segments_with_option;
	// The application has set a timeout, which is left alone.
	__u8 is_applications;
	__u8 unused[2];
};

// The record that the iterator writes for each socket with an entry in `given`.
struct record {
	__u64 cookie;
	struct given given;
};

enum pass {
	APPLY,
	// Every socket gets its former timeout back.
	RESTORE,
};

enum counter {
	SET,
	SET_OPEN,
	APPLICATIONS_OWN,
	REFUSED,
	ASKED,
	NOT_ASKED,
	OPTIONS_SENT,
	OPTIONS_RECEIVED,
	COUNTERS,
};

// Whether a rule fits, and whether it asks for the owner.
enum verdict {
	NOTHING_FITS,
	FITS,
	NEEDS_OWNER,
};
