//! Where each connection of a capture lost its time.
//!
//! A [`Capture`] is read packet by packet, and an [`Analysis`] keeps of each connection what is needed, in memory that does not
//! grow with the capture. Of each direction in which data was sent, a [`Conversation`], it tells the round trips and the
//! place of the capture ([`Place`]), finds the outages ([`outages_of_paths`]), and divides the time ([`account`]) among what it
//! was spent on: moving data and what limited that, waiting for a retransmission timer, a closed window, an application that had
//! nothing to send, and outages.
//!
//! A second pass over the packets ([`LinkEstimator`]) makes a [`LinkTrace`], with which a simulated link does what the path did.
//!
//! The accounting works on any capture of both directions, ours or another's, from any place on the path. It is best at the
//! sender, where what is seen is what the sender knew.

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
mod stream;

pub use account::{Account, Cause, Span, account};
pub use analysis::{Analysis, Counts};
pub use capture::{Capture, CaptureReadError, Captured};
pub use conversation::{Conversation, Place};
pub use link_trace::{LinkEstimator, LinkRow, LinkTrace, LinkTraceError};
pub use outages::{Certainty, FoundOutage, KnownOutages, Outage, outages_of_paths};
