//! The library as its callers see it. Every test runs in a process of its own, since the driver's state is the
//! process's.

#[cfg(test)]
mod isolated;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod library;
mod memory;
#[cfg(test)]
mod process;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod threads;
