//! The shell of this process.

use holdover_flow::comparison;

use super::*;

/// The shell of this process, with tables of flows and predictions like the kernel's.
pub(super) struct Native {
    pub(super) flows: BTreeMap<Connection, Flow>,
    /// The table of a host of the simulator.
    pub(super) simulated: HostFlows,
    pub(super) places: Vec<Place>,
    pub(super) predictions_before: Vec<Option<Prediction>>,
    pub(super) rules: Rules,
}

impl Native {
    pub(super) fn new(rules: Rules) -> Self {
        let places = vec![Place::default(); PREDICTIONS as usize / 2];
        let simulated = HostFlows::default();
        Self { flows: BTreeMap::new(), simulated, places, predictions_before: vec![None; PREDICTIONS as usize], rules }
    }

    pub(super) fn place(key: &Key) -> usize {
        Prediction::number(key, Direction::Outgoing) as usize / 2
    }

    pub(super) fn handle_packet(
        &mut self,
        now: Instant,
        link: &LinkState,
        connection: Connection,
        direction: Direction,
        packet: &mut Packet,
        form: Form,
    ) -> (Verdict, Option<Notice>) {
        let key = Key::new(connection);
        let segment = packet.tcp().expect("it is TCP");
        let finding = Flow::find_at_host(self.flows.get(&connection), direction, packet, segment);
        // The simulator sets SYNs of strangers aside.
        if direction == Direction::Outgoing || finding == Finding::FlowKnown {
            let environment = Environment { now, link: &Link::new(link), rules: &self.rules };
            let _ = self.simulated.handle_packet(connection, environment, direction, &mut packet.clone(), form);
        }
        if matches!(finding, Finding::FlowBegins | Finding::FlowEnds) {
            self.remove(connection);
        }
        let flow = match finding {
            Finding::FlowKnown => self.flows.get_mut(&connection),
            Finding::FlowBegins => Some(self.flows.entry(connection).or_default()),
            Finding::FlowUnseen | Finding::FlowEnds => None,
        };
        let Some(flow) = flow else { return (Verdict::Pass, None) };
        let link = Link::new(link);
        let environment = Environment { now, link: &link, rules: &self.rules };
        let handled =
            flow.handle_packet(&mut self.places[Self::place(&key)], &key, environment, direction, packet, form);
        if !flow.is_exempt() {
            comparison::note_frame(flow, now, direction, frame(connection));
        }
        handled
    }

    pub(super) fn forget(&mut self, connection: Connection) {
        self.simulated.remove(connection);
        self.remove(connection);
    }

    fn remove(&mut self, connection: Connection) {
        let key = Key::new(connection);
        for direction in Direction::BOTH {
            self.places[Self::place(&key)].free(&key, direction);
        }
        self.flows.remove(&connection);
    }

    /// Compares when the flow of a connection has begun, and whether it is over, with the simulator.
    pub(super) fn compare_stage(&self, connection: Connection) {
        let stage = |flow: &Flow| (flow.began_at(), flow.is_over());
        let flow = self.flows.get(&connection).map(stage);
        assert_eq!(flow, self.simulated.get(connection).map(stage), "{connection}");
    }

    pub(super) fn order(&mut self, connection: Connection, order: OrderRecord) {
        self.simulated.handle_order(connection, &order);
        let place = &mut self.places[Self::place(&Key::new(connection))];
        if let Some(flow) = self.flows.get_mut(&connection) {
            flow.handle_order(place, &order);
        }
    }

    pub(super) fn free_idle_predictions(&mut self) {
        for number in 0..PREDICTIONS {
            let (place, direction) = (number as usize / 2, way(number % 2 == 0));
            let prediction = self.places[place].predictions()[number as usize % 2];
            let before = self.predictions_before[number as usize].replace(prediction);
            if !prediction.is_free() && before == Some(prediction) {
                let key = prediction.key();
                match self.flows.get_mut(&key.connection()) {
                    Some(flow) => {
                        flow.handle_order(&mut self.places[place], &OrderRecord::free_prediction(key, number));
                    }
                    None => self.places[place].free(&key, direction),
                }
            }
        }
    }
}

/// A path that ignores orders: the case gives its own.
pub(super) struct Recorder(pub(super) Option<Flow>, pub(super) Connection);

impl FlowTable for Recorder {
    fn snapshot(&self, connection: Connection) -> Option<Flow> {
        self.0.filter(|_| connection == self.1)
    }

    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &Flow)) {
        self.0.iter().for_each(|flow| look(self.1, flow));
    }

    fn order(&mut self, _now: Instant, _connection: Connection, _direction: Direction, _order: Order) {}

    fn set_link(&mut self, _link: LinkState) {}
}

pub(super) fn way(is_outgoing: bool) -> Direction {
    if is_outgoing { Direction::Outgoing } else { Direction::Incoming }
}
