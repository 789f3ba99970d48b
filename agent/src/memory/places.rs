//! On which device a context is, as far as is known.

use super::{Ledgers, Place, Sources, book::Book};

impl Ledgers {
    /// Where a context's memory is; once it is known it is not asked again for each call.
    pub(super) fn place(&mut self, pid: u32, book: usize, now_ns: u64, from: Sources<'_>) -> Place {
        let known = self.processes.get(&pid).and_then(|process| process.books.get(book)?.place);
        match known {
            Some(place @ Place::Device(_)) => place,
            _ => self.look_up(pid, book, now_ns, from),
        }
    }

    /// The same, asked anew: what was inferred may be known better now.
    pub(super) fn look_up(&mut self, pid: u32, book: usize, now_ns: u64, from: Sources<'_>) -> Place {
        let of = |book: &Book| (book.context, book.place);
        let book_of = self.processes.get(&pid).and_then(|process| process.books.get(book));
        let (context, known) = book_of.map(of).unwrap_or_default();
        let found = from.placements.place(pid, context, from.devices, now_ns);
        let found = found.and_then(|found| self.device(&found.device));
        let place = found.or(known).unwrap_or(Place::Process(pid));
        if known == Some(place) {
            return place;
        }
        let moment = self.sights.entry(place).or_default().now(now_ns);
        let device = self.uuid(place);
        for pending in self.pending.iter_mut().filter(|pending| pending.failure.pid == pid) {
            if Some(pending.place) == known {
                pending.moves(place, device.clone(), moment);
            }
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.moves(book, known, place);
        }
        place
    }

    pub(super) fn device(&mut self, uuid: &str) -> Option<Place> {
        const MAX_DEVICES: usize = 256;
        let at = self.uuids.iter().position(|known| known == uuid).or_else(|| {
            if self.uuids.len() >= MAX_DEVICES {
                let at = self.unused_device()?;
                self.sights.remove(&Place::Device(at));
                uuid.clone_into(&mut self.uuids[at]);
                return Some(at);
            }
            self.uuids.push(uuid.to_owned());
            Some(self.uuids.len() - 1)
        });
        at.map(Place::Device)
    }

    /// A device that nobody holds memory of or waits for any more: instances of divided GPUs come and go.
    fn unused_device(&self) -> Option<usize> {
        let is_used = |place: Place| {
            let held = |process: &super::Process| {
                process.books.iter().any(|book| book.place == Some(place))
                    || process.here.contains_key(&place)
            };
            self.processes.values().any(held) || self.pending.iter().any(|pending| pending.place == place)
        };
        (0..self.uuids.len()).find(|&at| !is_used(Place::Device(at)))
    }

    pub(super) fn uuid(&self, place: Place) -> Option<String> {
        match place {
            Place::Device(at) => self.uuids.get(at).cloned(),
            Place::Process(_) => None,
        }
    }
}
