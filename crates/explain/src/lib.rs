//! Finds where each connection of a capture lost its time.
//!
//! A [`Capture`] is read packet by packet, and an [`Analysis`] keeps the needed state of each connection, in memory that does not grow with
//! the capture. For each direction that carried data, a [`Conversation`], it measures the round trips, determines the place of the capture
//! ([`Place`]), finds the outages ([`outages_of_paths`]), and attributes the time ([`account`]) to causes: data transfer and its limiting
//! factor, waiting for a retransmission timer, a closed window, an idle application, and outages.
//!
//! A second pass over the packets ([`LinkEstimator`]) produces a [`LinkTrace`], with which a simulated link reproduces the path.
//!
//! The analysis works on any capture of both directions, from any program and any place on the path. It is most accurate at the sender,
//! where the capture matches the sender's knowledge.

#![forbid(unsafe_code)]

mod account;
mod analysis;
mod capture;
mod conversation;
mod evidence;
mod link_trace;
mod outages;
mod round_trip;
mod rounds;
mod segment;
mod spans;
mod stream;

pub use account::{Account, account};
pub use analysis::{Analysis, Counts};
pub use capture::{Capture, CaptureReadError, Captured};
pub use conversation::{Conversation, Place};
pub use link_trace::{LinkEstimator, LinkRow, LinkTrace, LinkTraceError};
pub use outages::{Certainty, FoundOutage, KnownOutages, Outage, outages_of_paths};
pub use spans::{Cause, Span};
