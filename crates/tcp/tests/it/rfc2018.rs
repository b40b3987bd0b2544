//! RFC 2018, selective acknowledgment, and RFC 2883, reporting duplicates by it: the receiver's side.

use holdover_base::Duration;
use holdover_tcp::{Config, Disposition, Reason, State};
use holdover_wire::{RareOptions, TcpOptions};

use crate::script::*;

fn sack() -> Config {
    let mut config = plain();
    config.sack = true;
    config.dsack = false;
    config
}

fn dsack() -> Config {
    Config { dsack: true, ..sack() }
}

#[test]
fn rfc2018_2_sack_is_agreed_in_the_handshake() {
    let ours =
        |sack_permitted| TcpOptions::from(RareOptions { mss: Some(1000), sack_permitted, ..RareOptions::default() });
    let mut t = Script::connect(sack());
    t.expect(our_syn().options(ours(true)));
    t.inject(syn_ack());
    t.expect(ack(1));
    assert!(!t.connection.sack_agreed());
    // Without agreement on SACK, gaps are not reported.
    t.inject(seg().seq(1001).data(1000));
    t.expect(ack(1).sack(&[]));
    let mut t = Script::accept(sack(), syn());
    t.expect(our_syn_ack().options(ours(false)));
    let mut t = Script::accept(sack(), syn().sack_ok());
    t.expect(our_syn_ack().options(ours(true)));
    let mut t = Script::accept(plain(), syn().sack_ok());
    t.expect(our_syn_ack().options(ours(false)));
}

/// Section 4: the first block holds the segment that caused the ACK, the others follow in order of recency.
#[test]
fn rfc2018_4_the_most_recent_block_is_first() {
    let mut t = Script::established(sack());
    t.inject(seg().seq(1001).data(1000));
    t.expect(ack(1).sack(&[(1001, 2001)]).reason(Reason::DuplicateAck));
    t.inject(seg().seq(5001).data(1000));
    t.expect(ack(1).sack(&[(5001, 6001), (1001, 2001)]));
    t.inject(seg().seq(3001).data(1000));
    t.expect(ack(1).sack(&[(3001, 4001), (5001, 6001), (1001, 2001)]));
    t.inject(seg().seq(7001).data(1000));
    t.expect(ack(1).sack(&[(7001, 8001), (3001, 4001), (5001, 6001), (1001, 2001)]));
    // There are five blocks, and no room for the oldest.
    t.inject(seg().seq(9001).data(500));
    t.expect(ack(1).sack(&[(9001, 9501), (7001, 8001), (3001, 4001), (5001, 6001)]));
    // Two adjacent blocks merge into one, which is the most recent.
    t.inject(seg().seq(4001).data(1000));
    t.expect(ack(1).sack(&[(3001, 6001), (9001, 9501), (7001, 8001), (1001, 2001)]));
    // The gap at RCV.NXT closes: its block is acknowledged, and no longer SACKed.
    t.inject(seg().seq(1).data(1000));
    t.expect(ack(2001).sack(&[(3001, 6001), (9001, 9501), (7001, 8001)]).reason(Reason::GapFilled));
}

/// Section 3: with timestamps there is room for three.
#[test]
fn rfc2018_3_three_blocks_beside_timestamps() {
    let mut t = Script::established(Config { timestamps: Some(Duration::from_millis(1)), ..sack() });
    for n in 0..4_i64 {
        t.inject(seg().seq(1001 + n * 2000).data(500));
        let blocks: Vec<_> = (0..=n).rev().take(3).map(|n| (1001 + n * 2000, 1501 + n * 2000)).collect();
        t.expect(ack(1).sack(&blocks));
    }
}

/// Section 4: every ACK reports a gap as long as it exists, and no ACK does otherwise.
#[test]
fn rfc2018_4_every_ack_reports_while_there_is_a_gap() {
    let mut t = Script::established(sack());
    t.inject(seg().seq(1001).data(1000));
    t.expect(ack(1).sack(&[(1001, 2001)]));
    t.inject(seg().seq(1).data(400));
    t.expect(ack(401).sack(&[(1001, 2001)]).reason(Reason::GapFilled));
    t.inject_as(Disposition::OutsideWindow, seg().seq(40_000).data(1));
    t.expect(ack(401).sack(&[(1001, 2001)]));
    t.inject(seg().data(600));
    t.expect(ack(2001));
    t.inject(seg().data(1000));
    t.expect_at(200, ack(3001));
}

/// Data segments carry the blocks too, and have less room for data.
#[test]
fn rfc2018_4_data_carries_the_blocks() {
    let mut t = Script::established(sack());
    t.inject(seg().seq(1001).data(1000));
    t.expect(ack(1).sack(&[(1001, 2001)]));
    t.write(1000);
    t.expect(data(1, 989).sack(&[(1001, 2001)]));
    t.inject(seg().ack(989));
    t.expect(data(989, 1001).sack(&[(1001, 2001)]));
}

/// RFC 2883 section 4.1.1: a segment that is already acknowledged.
#[test]
fn rfc2883_4_1_1_a_duplicate_below_the_ack() {
    let mut t = Script::established(dsack());
    t.inject(seg().data(500));
    t.inject(seg().data(500));
    t.forget_sent();
    t.inject_as(Disposition::DuplicateData, seg().seq(501).data(500));
    t.expect(ack(1001).sack(&[(501, 1001)]).reason(Reason::DuplicateData));
    // A duplicate is reported once.
    t.inject(seg().data(600));
    t.inject(seg().data(600));
    t.expect(ack(2201));
}

/// Section 4.1.2: the duplicate comes first, then the data above the gap.
#[test]
fn rfc2883_4_1_2_a_duplicate_below_the_ack_while_there_is_a_gap() {
    let mut t = Script::established(dsack());
    t.inject(seg().data(500));
    t.inject(seg().seq(1501).data(500));
    t.expect(ack(501).sack(&[(1501, 2001)]));
    t.inject_as(Disposition::DuplicateData, seg().seq(1).data(500));
    t.expect(ack(501).sack(&[(1, 501), (1501, 2001)]));
    t.inject(seg().seq(2501).data(500));
    t.expect(ack(501).sack(&[(2501, 3001), (1501, 2001)]));
}

/// Section 4.1.3: a duplicate above the ACK is followed by the block around it.
#[test]
fn rfc2883_4_1_3_a_duplicate_of_what_is_out_of_order() {
    let mut t = Script::established(dsack());
    t.inject(seg().seq(1001).data(1000));
    t.expect(ack(1).sack(&[(1001, 2001)]));
    t.inject(seg().seq(2001).data(500));
    t.expect(ack(1).sack(&[(1001, 2501)]));
    t.inject(seg().seq(5001).data(500));
    t.expect(ack(1).sack(&[(5001, 5501), (1001, 2501)]));
    t.inject(seg().seq(1001).data(1000));
    t.expect(ack(1).sack(&[(1001, 2001), (1001, 2501), (5001, 5501)]));
}

/// Section 4.2: only the duplicate part is reported.
#[test]
fn rfc2883_4_2_a_partial_duplicate() {
    let mut t = Script::established(dsack());
    t.inject(seg().data(1000));
    t.inject(seg().seq(501).data(1000));
    t.expect(ack(1501).sack(&[(501, 1001)]));
    t.inject(seg().seq(2001).data(1000));
    t.expect(ack(1501).sack(&[(2001, 3001)]));
    t.inject(seg().seq(2501).data(1000));
    t.expect(ack(1501).sack(&[(2501, 3001), (2001, 3501)]));
}

/// Data that was out of order and arrives again with the segment that fills the gap before it, as Linux reports it.
#[test]
fn rfc2883_4_2_a_duplicate_behind_a_filled_gap() {
    let mut t = Script::established(dsack());
    for seq in [1001, 4001, 7001] {
        t.inject(seg().seq(seq).data(1000));
        t.forget_sent();
    }
    t.inject(seg().seq(1).data(6000));
    t.expect(ack(6001).sack(&[(1001, 2001), (7001, 8001)]));
    t.inject(seg().seq(6001).data(1500));
    t.expect(ack(8001).sack(&[(7001, 7501)]));
}

#[test]
fn rfc2883_without_dsack_duplicates_are_only_acknowledged() {
    let mut t = Script::established(sack());
    t.inject(seg().data(500));
    t.inject(seg().data(500));
    t.forget_sent();
    t.inject_as(Disposition::DuplicateData, seg().seq(501).data(500));
    t.expect(ack(1001));
}

/// Section 3: a FIN has a sequence number (RFC 9293 section 3.4), so that the block that ends with the FIN includes it.
#[test]
fn rfc2018_3_a_fin_out_of_order_is_reported() {
    let mut t = Script::established(sack());
    t.inject(seg().seq(201).data(100));
    t.expect(ack(1).sack(&[(201, 301)]));
    t.inject(fin().seq(301));
    t.expect(ack(1).sack(&[(201, 302)]));
    // Data in another block, then a FIN with data that its block already has.
    t.inject(seg().seq(101).data(50));
    t.expect(ack(1).sack(&[(101, 151), (201, 302)]));
    t.inject(fin().seq(251).data(50));
    t.expect(ack(1).sack(&[(201, 302), (101, 151)]));
    t.inject(seg().seq(1).data(100));
    t.expect(ack(151).sack(&[(201, 302)]));
    t.inject(seg().seq(151).data(50));
    t.expect(ack(302));
    t.expect_state(State::CloseWait);
}

/// ... also if no data has arrived that ends where the FIN begins.
#[test]
fn rfc2018_3_a_fin_by_itself_is_a_block() {
    let mut t = Script::established(sack());
    t.inject(fin().seq(301));
    t.expect(ack(1).sack(&[(301, 302)]));
    t.inject(seg().seq(101).data(100));
    t.expect(ack(1).sack(&[(101, 201), (301, 302)]));
    t.inject(seg().seq(201).data(100));
    t.expect(ack(1).sack(&[(101, 302)]));
    t.inject(seg().seq(1).data(100));
    t.expect(ack(302));
    t.expect_state(State::CloseWait);
}

/// For the sender the whole segment has arrived: with no other loss, the missing data before it is retransmitted.
#[test]
fn rfc2018_3_a_fin_that_is_reported_has_arrived() {
    let mut t = Script::established(sack());
    t.write(1500);
    t.close();
    t.expect(data(1, 1001));
    t.expect(data(1001, 1501).and_fin());
    t.inject(seg().sack(&[(1001, 1502)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    assert_eq!(t.connection.sacked(), 1);
}
