//! Questions to a resolver, and their answers.

use domain::base::iana::{Opcode, OptRcode, Rtype};
use domain::base::name::ToName as _;
use domain::base::{Message, MessageBuilder, UnknownRecordData};

use super::DomainName;

/// The size of UDP answers that pass most paths without fragments (the recommendation of DNS Flag Day 2020).
const UDP_PAYLOAD_SIZE: u16 = 1232;

/// A question, as it is sent.
pub(crate) struct Query {
    message: Message<Vec<u8>>,
    rtype: Rtype,
}

/// The content of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// The answer did not fit: it has to be asked for over TCP.
    Truncated,
    /// The resolver has refused, or has failed.
    Failed(OptRcode),
    /// It cannot be read.
    Malformed,
    /// The name does not exist.
    NoSuchName,
    /// The data of the records of the type, none if the name has no such record.
    Records {
        /// The resolver has validated them (AD; RFC 4035 section 3.2.3).
        is_validated: bool,
        /// Their data.
        data: Vec<Vec<u8>>,
    },
}

impl Query {
    /// A question for recursion, and for the AD bit (RFC 6840 section 5.7).
    pub(crate) fn new(id: u16, name: &DomainName, rtype: Rtype, has_edns: bool) -> Self {
        let mut builder = MessageBuilder::new_vec();
        let header = builder.header_mut();
        header.set_id(id);
        header.set_rd(true);
        header.set_ad(true);
        let mut question = builder.question();
        question.push((name, rtype)).expect("a question fits into an empty message");
        let mut additional = question.additional();
        if has_edns {
            let pushed = additional.opt(|opt| {
                opt.set_udp_payload_size(UDP_PAYLOAD_SIZE);
                Ok(())
            });
            pushed.expect("a record fits behind a question");
        }
        Self { message: additional.into_message(), rtype }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.message.as_slice()
    }

    /// Parses an answer; `None` if the bytes are no answer to this question.
    pub(crate) fn read(&self, bytes: &[u8]) -> Option<Reading> {
        let message = Message::from_octets(bytes).ok()?;
        let header = message.header();
        if !header.qr() || header.id() != self.message.header().id() || header.opcode() != Opcode::QUERY {
            return None;
        }
        // A server that could not read the question may leave it out.
        let has_question = message.header_counts().qdcount() > 0 || header.rcode().to_int() != 1;
        if has_question && !message.is_answer(&self.message) {
            return None;
        }
        if header.tc() {
            return Some(Reading::Truncated);
        }
        Some(match message.opt_rcode() {
            OptRcode::NOERROR => match self.records(&message) {
                Some(data) => Reading::Records { is_validated: header.ad(), data },
                None => Reading::Malformed,
            },
            OptRcode::NXDOMAIN => Reading::NoSuchName,
            code => Reading::Failed(code),
        })
    }

    /// The data of the records of the type that the name has, or the one that the answer's CNAMEs lead to. Records of other names are
    /// ignored. `None` if the answer is malformed.
    fn records(&self, message: &Message<&[u8]>) -> Option<Vec<Vec<u8>>> {
        let owner = message.canonical_name()?;
        let mut data = Vec::new();
        for record in message.answer().ok()?.limit_to_in::<UnknownRecordData<_>>() {
            let record = record.ok()?;
            if record.rtype() == self.rtype && record.owner().name_eq(&owner) {
                data.push(record.data().data().to_vec());
            }
        }
        Some(data)
    }
}
