//! The worker's side: a thread that beats for the process, and a word from each of its others.

use crate::page::{Page, Phase, Role};
use crate::sys::{futex_wake_all, thread_id};
use crate::{Life, Sample};
use std::cell::{Cell, RefCell};
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two beats.
const BEAT: Duration = Duration::from_millis(2);
/// Between two reports to a controller on another machine.
const REPORT: u32 = 40;

type Tell = Box<dyn Fn(Sample) + Send>;

/// How a worker shows that it lives.
#[derive(Default)]
pub struct Options {
    /// Called about every 80 ms with all counters, on the thread that beats; must not wait.
    pub report: Option<Tell>,
}

/// The page of a worker, as the worker has it. Clones share it; the last one dropped ends the
/// signs of life in good order.
#[derive(Clone)]
pub struct Pulse(Arc<Inner>);

struct Inner {
    page: Page,
    stop: Arc<AtomicBool>,
    heart: Mutex<Option<JoinHandle<()>>>,
}

impl Pulse {
    /// A page, and a thread that beats on it and whose end the kernel tells.
    ///
    /// # Errors
    /// When there is no memory or no thread to be had.
    pub fn start(options: Options) -> io::Result<Pulse> {
        let page = Page::create()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = channel();
        let (its_page, its_stop) = (page.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("heart".into()).stack_size(256 << 10);
        let heart = thread.spawn(move || beat(&its_page, &its_stop, &ready, options.report))?;
        is_ready.recv().map_err(|_| io::Error::other("the heart's thread has ended"))?;
        let heart = Mutex::new(Some(heart));
        Ok(Pulse(Arc::new(Inner { page, stop, heart })))
    }

    /// Number of the page's descriptor, under which [`Page::open`] finds it.
    pub fn fd(&self) -> u32 {
        self.0.page.fd()
    }

    /// Ends the signs of life in good order, whoever still has a clone.
    pub fn leave(&self) {
        self.0.leave();
    }

    /// Names the step at hand.
    pub fn step(&self, step: u64) {
        self.0.page.step().store(step + 1, Ordering::Relaxed);
    }

    /// From now on, until the result is dropped, [`enter`] and [`tick`] on this thread are shown.
    pub fn join(&self, role: Role) -> Stream {
        let before = HERE.get();
        let slot = self.0.page.take(role);
        let word = slot.map_or(std::ptr::null(), |s| std::ptr::from_ref(self.0.page.stream(s)));
        HERE.set(word);
        let pulse = PULSE.replace(Some(self.clone()));
        Stream { pulse: self.clone(), slot, before, outer: pulse, thread: PhantomData }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Inner {
    fn leave(&self) {
        self.stop.store(true, Ordering::Release);
        let heart = self.heart.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(heart) = heart else { return };
        heart.thread().unpark();
        // Dropped by a report of its own: it ends by itself.
        if heart.thread().id() != std::thread::current().id() {
            let _ = heart.join();
        }
    }
}

thread_local! {
    /// The calling thread's word; null where nothing is shown.
    static HERE: Cell<*const AtomicU64> = const { Cell::new(std::ptr::null()) };
    static PULSE: RefCell<Option<Pulse>> = const { RefCell::new(None) };
}

/// The pulse that the calling thread has joined, for threads that it starts.
pub fn current() -> Option<Pulse> {
    PULSE.with_borrow(Clone::clone)
}

/// Names the step at hand, on a thread that has joined.
pub fn step(step: u64) {
    PULSE.with_borrow(|pulse| {
        if let Some(pulse) = pulse {
            pulse.step(step);
        }
    });
}

/// Says what the calling thread is at from now on.
pub fn enter(phase: Phase) {
    let word = HERE.get();
    if !word.is_null() {
        // SAFETY: `Stream` keeps the page mapped as long as `HERE` points into it.
        let word = unsafe { &*word };
        let count = word.load(Ordering::Relaxed) >> 8;
        word.store(count.wrapping_add(1) << 8 | u64::from(phase as u8), Ordering::Relaxed);
    }
}

/// Says that the calling thread has got on: a kernel, a batch, a file is done.
#[inline]
pub fn tick() {
    let word = HERE.get();
    if !word.is_null() {
        // SAFETY: as for `enter`. Nobody else writes the word, so no exchange is needed.
        let word = unsafe { &*word };
        word.store(word.load(Ordering::Relaxed).wrapping_add(1 << 8), Ordering::Relaxed);
    }
}

/// A thread that is shown. Dropped on that thread, it is not any more.
pub struct Stream {
    pulse: Pulse,
    slot: Option<usize>,
    before: *const AtomicU64,
    outer: Option<Pulse>,
    thread: PhantomData<*const ()>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        HERE.set(self.before);
        let _ = PULSE.try_with(|p| p.replace(self.outer.take()));
        if let Some(slot) = self.slot {
            self.pulse.0.page.give(slot);
        }
    }
}

#[repr(C)]
struct Entry {
    next: *const Entry,
}

/// As the kernel reads it: `struct robust_list_head`.
#[repr(C)]
struct Head {
    list: Entry,
    futex_offset: libc::c_long,
    pending: *const Entry,
}

/// Has the kernel mark the page's word of life, and wake who waits for it, when this thread ends.
fn hold(page: &Page) {
    let (entry, offset) = page.entry();
    let place: *const Entry = entry.as_ptr().cast();
    let futex_offset = offset as libc::c_long;
    // The kernel reads it when the thread ends, whatever that thread is at: it is never freed.
    let head = Box::leak(Box::new(Head {
        list: Entry { next: place },
        futex_offset,
        pending: std::ptr::null(),
    }));
    entry.store(std::ptr::from_ref(&head.list) as u64, Ordering::Relaxed);
    // SAFETY: the list is well-formed: head, one entry, head. It lives as long as the thread: the
    // head is leaked and `page` is held by this thread, which uses no robust mutex beside it.
    unsafe {
        libc::syscall(libc::SYS_set_robust_list, &raw const *head, size_of::<Head>());
    }
    // The kernel acts on words that name the thread, and wakes only where somebody waits.
    page.life_word().store(thread_id() | libc::FUTEX_WAITERS, Ordering::Release);
}

fn beat(page: &Page, stop: &AtomicBool, ready: &Sender<()>, report: Option<Tell>) {
    hold(page);
    let _ = ready.send(());
    let mut beats = 0u32;
    while !stop.load(Ordering::Acquire) {
        page.beats().fetch_add(1, Ordering::Relaxed);
        beats = beats.wrapping_add(1);
        if let Some(report) = &report
            && beats.is_multiple_of(REPORT)
        {
            report(page.sample());
        }
        std::thread::park_timeout(BEAT);
    }
    debug_assert_eq!(page.life(), Life::Alive);
    page.life_word().store(0, Ordering::Release);
    futex_wake_all(page.life_word());
}
