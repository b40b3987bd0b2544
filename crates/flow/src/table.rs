//! Flow tables.

use holdover_base::Instant;
use holdover_filter::{Connection, Direction};

use crate::layout::Flow;
use crate::link::LinkState;
use crate::order::Order;

/// The flows of a link, in this process or in the kernel, as the controller sees them.
pub trait FlowTable {
    /// A copy of a flow.
    fn snapshot(&self, connection: Connection) -> Option<Flow>;

    /// Calls `look` for each flow in which the host takes part and that is not closed.
    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &Flow));

    /// Applies an order to the half whose ACKs go in `direction`.
    fn order(&mut self, now: Instant, connection: Connection, direction: Direction, order: Order);

    /// Sets the state of the link.
    fn set_link(&mut self, link: LinkState);
}
