//! What all ranks are to say of one thing: that it is complete is known without a look at each.

#[derive(Clone, Debug)]
pub(crate) struct Tally<T> {
    said: Vec<Option<T>>,
    missing: usize,
}

impl<T> Tally<T> {
    pub fn new(world: usize) -> Tally<T> {
        Tally { said: std::iter::repeat_with(|| None).take(world).collect(), missing: world }
    }

    /// False if this rank has none to say, or has said it before.
    pub fn put(&mut self, rank: u32, what: T) -> bool {
        let Some(slot @ None) = self.said.get_mut(rank as usize) else { return false };
        *slot = Some(what);
        self.missing -= 1;
        true
    }

    /// Said by one more, of whose rank nothing is known.
    pub fn add(&mut self, what: T) {
        self.said.push(Some(what));
    }

    pub fn awaits(&self, rank: u32) -> bool {
        self.said.get(rank as usize).is_some_and(|said| said.is_none())
    }

    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// In order of rank, of those that have.
    pub fn said(&self) -> impl Iterator<Item = &T> {
        self.said.iter().flatten()
    }

    pub fn is_empty(&self) -> bool {
        self.missing == self.said.len()
    }
}
