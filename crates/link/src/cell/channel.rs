//! Cells on one channel: their nodes contend for the medium as if they were one cell.
//!
//! Every node of the channel hears all others, in all cells: while one cell has an exchange on the air the others wait,
//! and nodes of different cells that count down to zero together collide. A base station that retries for a station
//! that has left therefore takes airtime from its neighbours.

use holdover_base::Instant;

use super::hop::Node;
use super::medium::Cell;
use crate::frame::Frame;

/// Starts the next exchange on a channel, unless one is on the air in any of its cells or no node has a frame.
///
/// A cell with [`super::CellConfig::channel`] sends nothing by itself: the driver of the cells of a channel calls this
/// after every call to one of them. All cells have the same [`super::Dcf`].
pub fn contend<F: Frame>(cells: &mut [&mut Cell<F>], now: Instant) {
    if cells.iter().any(|cell| cell.is_busy()) {
        return;
    }
    let slots: Vec<Vec<(Node, u32)>> = cells.iter_mut().map(|cell| cell.drawn_slots(now)).collect();
    let Some(least) = slots.iter().flatten().map(|&(_, slots)| slots).min() else { return };
    let alone = slots.iter().flatten().filter(|&&(_, slots)| slots == least).count() == 1;
    for (cell, slots) in cells.iter_mut().zip(slots) {
        let winners = cell.count_down(&slots, least);
        if !winners.is_empty() {
            cell.begin(now, least, winners, alone);
        }
    }
}
