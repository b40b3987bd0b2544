//! The engine on a real kernel: whatever happens to its process, streams are exact and nothing stays frozen.

pub(crate) mod filters;
mod frames;
mod hung;
mod killed;
mod many;
mod nat;
mod older;
mod poked;
pub(crate) mod process;
mod raw;
mod silent;
pub(crate) mod traffic;

use crate::Test;

pub(crate) const TESTS: &[Test] = &[
    ("killed_at_any_moment_it_leaves_nothing_frozen", killed::killed_at_any_moment_it_leaves_nothing_frozen),
    ("hung_while_the_link_is_down_it_lets_packets_pass", hung::hung_while_the_link_is_down_it_lets_packets_pass),
    ("hung_in_a_fading_it_lets_packets_pass", hung::hung_in_a_fading_it_lets_packets_pass),
    (
        "killed_without_tcx_it_lets_packets_pass_until_the_next",
        filters::killed_without_tcx_it_lets_packets_pass_until_the_next,
    ),
    ("filters_of_others_stay", filters::filters_of_others_stay),
    ("beside_an_ingress_qdisc_nothing_is_attached", filters::beside_an_ingress_qdisc_nothing_is_attached),
    (
        "an_engine_with_tcx_removes_what_one_without_has_left",
        filters::an_engine_with_tcx_removes_what_one_without_has_left,
    ),
    ("data_written_in_an_outage_arrive_at_once", poked::data_written_in_an_outage_arrive_at_once),
    ("a_key_does_not_wait_for_the_timer_of_the_host", poked::a_key_does_not_wait_for_the_timer_of_the_host),
    ("a_key_that_was_sent_again_is_the_probe", poked::a_key_that_was_sent_again_is_the_probe),
    (
        "a_silent_download_resumes_a_round_trip_after_a_probe",
        silent::a_silent_download_resumes_a_round_trip_after_a_probe,
    ),
    ("a_download_older_than_the_agent_is_woken", older::a_download_older_than_the_agent_is_woken),
    ("an_upload_older_than_the_agent_is_woken", older::an_upload_older_than_the_agent_is_woken),
    (
        "fifty_thousand_connections_take_bounded_memory_and_time",
        many::fifty_thousand_connections_take_bounded_memory_and_time,
    ),
    ("when_there_is_no_room_the_longest_idle_go", many::when_there_is_no_room_the_longest_idle_go),
    ("packets_that_stand_for_many_are_rewritten_right", frames::packets_that_stand_for_many_are_rewritten_right),
    ("signed_connections_are_left_alone", frames::signed_connections_are_left_alone),
    ("a_phone_behind_a_router_is_woken", nat::a_phone_behind_a_router_is_woken),
    ("a_router_wakes_the_phones_behind_it", nat::a_router_wakes_the_phones_behind_it),
    ("unsupported_packets_pass_unchanged_and_are_counted", frames::unsupported_packets_pass_unchanged_and_are_counted),
];
