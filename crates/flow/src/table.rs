//! Where flows are remembered.

use holdover_base::Instant;
use holdover_filter::{Connection, Direction};

use crate::layout::Flow;
use crate::link::LinkState;
use crate::order::Order;

/// The flows of a link, in this process or in the kernel, as a controller sees them.
pub trait FlowTable {
    /// A flow as it is now.
    fn snapshot(&self, connection: Connection) -> Option<Flow>;

    /// Looks at each flow that the host takes part in and that is not over.
    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &Flow));

    /// Changes the half whose ACKs go in `direction`.
    fn order(&mut self, now: Instant, connection: Connection, direction: Direction, order: Order);

    /// Says what the link does from now on.
    fn set_link(&mut self, link: LinkState);
}
