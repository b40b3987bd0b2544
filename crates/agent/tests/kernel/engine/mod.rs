//! The engine on a real kernel: whatever becomes of its process, streams are exact and nothing stays frozen.

mod hung;
mod killed;
mod older;
pub(crate) mod process;
mod traffic;

use crate::Test;

pub(crate) const TESTS: &[Test] = &[
    ("killed_at_any_moment_it_leaves_nothing_frozen", killed::killed_at_any_moment_it_leaves_nothing_frozen),
    ("hung_while_the_link_is_down_it_lets_packets_pass", hung::hung_while_the_link_is_down_it_lets_packets_pass),
    ("hung_in_a_fading_it_lets_packets_pass", hung::hung_in_a_fading_it_lets_packets_pass),
    ("a_download_older_than_the_agent_is_woken", older::a_download_older_than_the_agent_is_woken),
    ("an_upload_older_than_the_agent_is_woken", older::an_upload_older_than_the_agent_is_woken),
];
