//! The attach cookie: what one program needs to know about the function it is attached to.
//!
//! One program serves many CUDA functions. The cookie says which row of the agent's table fired and where its
//! arguments are, so that a new function with a known shape is a new row and no new kernel code.
//!
//! Layout, low to high: row (16 bits), stream location (8), bytes location (8), object location (8), class (8),
//! flags (8).

/// Where a 64-bit argument is found when the function is entered (System V x86-64 / AAPCS64 integer order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loc {
    /// The function has no such argument.
    None,
    /// The n-th argument, in a register (0..=5).
    Arg(u8),
    /// The n-th 8-byte slot on the stack, counted from the return address = 0 (1..=15).
    Stack(u8),
    /// Read through the pointer in argument 0, at this byte offset (0..=63).
    Deref(u8),
}

impl Loc {
    const fn encode(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Arg(n) => 0x10 | (n & 0x0f),
            Self::Stack(n) => 0x20 | (n & 0x0f),
            Self::Deref(off) => 0x40 | (off & 0x3f),
        }
    }

    const fn decode(b: u8) -> Self {
        match b {
            0x10..=0x1f => Self::Arg(b & 0x0f),
            0x20..=0x2f => Self::Stack(b & 0x0f),
            0x40..=0x7f => Self::Deref(b & 0x3f),
            _ => Self::None,
        }
    }
}

macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $number:literal,)+) => {
        /// What a row does, within the program it is attached to.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Class {
            $($(#[doc = $doc])+ $variant = $number,)+
        }

        impl Class {
            /// The class behind a number of a record; `None` if it is unknown.
            pub const fn from_u8(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

classes! {
    /// A kernel launch; `bytes` is the number of launches where one call makes several.
    Launch = 1,
    /// A graph launch; `object` is the executable graph.
    GraphLaunch = 2,
    /// A copy host to device.
    CopyH2D = 3,
    /// A copy device to host.
    CopyD2H = 4,
    /// A copy device to device.
    CopyD2D = 5,
    /// A copy whose direction the call does not tell.
    CopyAny = 6,
    /// Waits for one stream.
    SyncStream = 7,
    /// Waits for one event; `object` is the event.
    SyncEvent = 8,
    /// Waits for every stream of the context.
    SyncContext = 9,
    /// Records an event; `object` is the event.
    EventRecord = 10,
    /// Makes a stream wait for an event; `object` is the event.
    WaitEvent = 11,
    /// Allocates device memory; `object` is the pointer to where the address is returned.
    Alloc = 12,
    /// Frees device memory; `object` is the address.
    Free = 13,
    /// Sets device memory: an operation that moves no bytes to or from anywhere.
    Memset = 14,
    /// A copy that argument 0, a `CUDA_MEMCPY2D`, describes.
    Copy2D = 15,
    /// A copy that argument 0, a `CUDA_MEMCPY3D` or `CUDA_MEMCPY3D_PEER`, describes.
    Copy3D = 16,
    /// Several copies in one call; `object` is the array of their sizes, `bytes` their number.
    CopyBatch = 17,
    /// A copy of `object` rows of `bytes`, whose direction no location tells.
    CopyRows = 83,
    /// A copy that `object`, a `cudaMemcpy3DParms`, describes; its direction is not looked at.
    CopyExtent = 84,
    /// Asks whether an event is done; `object` is the event.
    QueryEvent = 18,
    /// Asks whether a stream is done.
    QueryStream = 19,
    /// From its return on, the stream's work is collected and not run.
    CaptureBegin = 20,
    /// Ends what [`Class::CaptureBegin`] began.
    CaptureEnd = 21,
    /// Makes a stream; `object` is the pointer to where its handle is returned, `bytes` its flags.
    StreamCreate = 22,
    /// Destroys the stream, or where there is none the event `object`.
    Destroy = 23,
    /// Makes a context and makes it current; `object` is the pointer to where its handle is returned, `bytes` the device.
    ContextCreate = 24,
    /// Gives a device's primary context; arguments as above. The current one stays.
    ContextRetain = 25,
    /// Replaces the thread's current context; `object` is the context, 0 for none.
    ContextSet = 26,
    /// Makes a context current on top of the others; `object` is the context.
    ContextPush = 27,
    /// Takes the thread's current context away.
    ContextPop = 28,
    /// Destroys a context; `object` is the context.
    ContextDestroy = 29,
    /// Gives up a device's primary context, or resets it; `bytes` is the device.
    ContextReset = 30,
    /// Tells the device behind an ordinal; `object` is the pointer to where it is returned, `bytes` the ordinal.
    DeviceGet = 31,
    /// Tells the UUID of a device; `object` is the pointer to where it is returned, `bytes` the device.
    DeviceUuid = 80,
    /// Tells the PCI address of a device as text; likewise.
    DeviceBus = 81,
    /// Tells the device at a PCI address; `object` is the pointer to where it is returned, `bytes` the pointer to the text.
    DeviceByBus = 82,
    /// Looks a function up by name; `object` is the pointer to where its address is returned, `bytes` the one to where
    /// it is said whether there is such a function.
    Resolve = 32,
    /// Loads a module: its kernels may be compiled now.
    ModuleLoad = 40,
    /// Loads a library of kernels, likewise.
    LibraryLoad = 41,
    /// Compiles and links kernels.
    Link = 42,
    /// Makes a graph executable.
    GraphInstantiate = 43,
    /// Initialises the driver.
    Init = 44,
    /// Allocates rows of device memory; `other` is the pointer to where the distance of two rows is returned, the
    /// fourth argument their number.
    AllocPitch = 48,
    /// Allocates memory that moves between host and devices.
    AllocManaged = 49,
    /// Allocates from the current pool of the device, in stream order.
    AllocAsync = 50,
    /// Allocates from the pool `other`, in stream order.
    AllocPool = 51,
    /// Allocates an array of up to two dimensions, described by what `other` points to.
    AllocArray = 52,
    /// Allocates an array of up to three dimensions, likewise.
    AllocArray3D = 53,
    /// Allocates an array and smaller ones of its kind, likewise.
    AllocMipmap = 54,
    /// Allocates host memory that the device can reach.
    AllocHost = 55,
    /// Creates physical memory without an address; `other` points to its properties.
    CreatePhysical = 56,
    /// Reserves addresses, which is no memory.
    ReserveRange = 57,
    /// Creates a pool.
    CreatePool = 58,
    /// One more handle for physical memory there is.
    RetainPhysical = 59,
    /// A handle for physical memory of another process.
    ImportPhysical = 60,
    /// An address for memory of another process; `other` is the pointer to the handle, or where it lies on the stack.
    ImportAddress = 61,
    /// Gives memory back to its pool, in stream order.
    FreeAsync = 62,
    /// Destroys an array.
    FreeArray = 63,
    /// Frees host memory.
    FreeHost = 64,
    /// Lets the device reach host memory there is.
    RegisterHost = 65,
    /// Ends that.
    UnregisterHost = 66,
    /// Gives up a handle of physical memory.
    ReleasePhysical = 67,
    /// Maps physical memory, handle `other`, to reserved addresses.
    MapRange = 68,
    /// Unmaps all that is mapped within a range.
    UnmapRange = 69,
    /// Gives reserved addresses back.
    FreeRange = 70,
    /// Destroys a pool; what it gave lives on until it is freed.
    DestroyPool = 71,
    /// Asks a pool to give back what it keeps beyond `bytes`.
    TrimPool = 72,
    /// Sets attribute `other` of a pool.
    SetPool = 73,
    /// Gives up an address of memory of another process.
    CloseImport = 74,
    /// Asks for attribute `other` of a pool.
    GetPool = 75,
    /// Makes a handle by which other processes can reach the block at `object`; `other` is the pointer to where it is
    /// returned.
    ExportAddress = 77,
    /// Asks for free and all bytes of the device; `object` and `other` are the pointers to where they are returned.
    MemoryInfo = 76,
}

impl Class {
    /// Whether it is a memory row.
    pub const fn is_memory(self) -> bool {
        matches!(self as u8, 12 | 13 | 48..=79)
    }

    /// Whether `object` points to where the call returns an address or a handle.
    pub const fn gives_address(self) -> bool {
        matches!(self as u8, 12 | 48..=61)
    }
}

/// Stream handle 0 means the calling thread's own default stream (`_ptsz` variants), not the legacy one.
pub const FLAG_PER_THREAD: u8 = 1;
/// The call returns only when the copy is done: it is a result marker as well (synchronous copies).
pub const FLAG_BLOCKING: u8 = 2;
/// The function is the runtime's: its calls count only in processes that are in [`crate::names::FALLBACK`], since
/// everywhere else the driver, which it calls, counts them.
pub const FLAG_RUNTIME: u8 = 0x40;
/// The place is no exported function of the driver, but one that its users were given the address of.
pub const FLAG_INNER: u8 = 0x80;
/// Sizes and device addresses are of 32 bits: functions from before CUDA 3.2.
pub const FLAG_NARROW: u8 = 4;

/// A decoded cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Index of the row in the agent's table of CUDA functions.
    pub row: u16,
    /// Where the stream handle is; in memory rows that have one, the other thing of which [`Class`] tells.
    pub stream: Loc,
    /// Where the number of bytes is.
    pub bytes: Loc,
    /// Where the event, graph or address is; its meaning is in [`Class`].
    pub object: Loc,
    /// What the row does.
    pub class: Class,
    /// `FLAG_*`.
    pub flags: u8,
}

impl Cookie {
    /// The number given to the kernel at attach.
    pub const fn encode(self) -> u64 {
        self.row as u64
            | (self.stream.encode() as u64) << 16
            | (self.bytes.encode() as u64) << 24
            | (self.object.encode() as u64) << 32
            | (self.class as u64) << 40
            | (self.flags as u64) << 48
    }

    /// The cookie behind a number; `None` if its class is unknown.
    pub const fn decode(n: u64) -> Option<Self> {
        let packed = Packed(n);
        let Some(class) = packed.class() else {
            return None;
        };
        Some(Self {
            row: packed.row(),
            stream: packed.location(Argument::Stream),
            bytes: packed.location(Argument::Bytes),
            object: packed.location(Argument::Object),
            class,
            flags: packed.flags(),
        })
    }
}

/// An argument that a cookie locates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// [`Cookie::stream`].
    Stream = 2,
    /// [`Cookie::bytes`].
    Bytes = 3,
    /// [`Cookie::object`].
    Object = 4,
}

/// A cookie as the kernel hands it to the program: fields are decoded as they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed(pub u64);

impl Packed {
    /// [`Cookie::row`].
    pub const fn row(self) -> u16 {
        u16::from_le_bytes([self.byte(0), self.byte(1)])
    }

    /// Where an argument is.
    pub const fn location(self, argument: Argument) -> Loc {
        Loc::decode(self.byte(argument as u32))
    }

    /// [`Cookie::class`]; `None` if it is unknown.
    pub const fn class(self) -> Option<Class> {
        Class::from_u8(self.byte(5))
    }

    /// [`Cookie::flags`].
    pub const fn flags(self) -> u8 {
        self.byte(6)
    }

    const fn byte(self, index: u32) -> u8 {
        ((self.0 >> (8 * index)) & 0xff) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_location_and_class_survives_the_trip() {
        let locations = [
            Loc::None,
            Loc::Arg(0),
            Loc::Arg(5),
            Loc::Stack(1),
            Loc::Stack(15),
            Loc::Deref(0),
            Loc::Deref(63),
        ];
        for class in (1..=u8::MAX).filter_map(Class::from_u8) {
            for stream in locations {
                let cookie =
                    Cookie { row: 0xabcd, stream, bytes: Loc::Arg(2), object: Loc::None, class, flags: 3 };
                assert_eq!(Cookie::decode(cookie.encode()), Some(cookie));
            }
        }
    }

    #[test]
    fn an_unknown_class_is_none() {
        assert_eq!(Cookie::decode(0), None);
        assert_eq!(Cookie::decode(255 << 40), None);
    }
}
