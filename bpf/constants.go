package bpf

// The constants that Go shares with the C in src, which documents them. Each has the type
// of its field.

// The kinds of records: KernelHeader.Kind.
const (
	RecordAlloc          = uint8(KernelRecordKindRECORD_ALLOC)
	RecordAllocPerCore   = uint8(KernelRecordKindRECORD_ALLOC_PER_CORE)
	RecordFree           = uint8(KernelRecordKindRECORD_FREE)
	RecordFailed         = uint8(KernelRecordKindRECORD_FAILED)
	RecordClear          = uint8(KernelRecordKindRECORD_CLEAR)
	RecordDevice         = uint8(KernelRecordKindRECORD_DEVICE)
	RecordCB             = uint8(KernelRecordKindRECORD_CB)
	RecordProgramEnd     = uint8(KernelRecordKindRECORD_PROGRAM_END)
	RecordKernel         = uint8(KernelRecordKindRECORD_KERNEL)
	RecordExec           = uint8(KernelRecordKindRECORD_EXEC)
	RecordExit           = uint8(KernelRecordKindRECORD_EXIT)
	RecordNativeStack    = uint8(KernelRecordKindRECORD_NATIVE_STACK)
	RecordPythonStack    = uint8(KernelRecordKindRECORD_PYTHON_STACK)
	RecordCode           = uint8(KernelRecordKindRECORD_CODE)
	RecordProgramRun     = uint8(KernelRecordKindRECORD_PROGRAM_RUN)
	RecordProgramSeen    = uint8(KernelRecordKindRECORD_PROGRAM_SEEN)
	RecordStack          = uint8(KernelRecordKindRECORD_STACK)
	RecordUnloaded       = uint8(KernelRecordKindRECORD_UNLOADED)
	RecordCaught         = uint8(KernelRecordKindRECORD_CAUGHT)
	RecordMark           = uint8(KernelRecordKindRECORD_MARK)
	RecordBinariesLoaded = uint8(KernelRecordKindRECORD_BINARIES_LOADED)
	RecordTrace          = uint8(KernelRecordKindRECORD_TRACE)
	RecordBanks          = uint8(KernelRecordKindRECORD_BANKS)
	RecordTransfer       = uint8(KernelRecordKindRECORD_TRANSFER)
)

// The flags of records, by kind: KernelHeader.Flags.
const (
	DeviceMesh  = uint8(KernelDeviceFlagDEVICE_MESH)
	DeviceReady = uint8(KernelDeviceFlagDEVICE_READY)

	FreeHooked = uint8(KernelFreeFlagFREE_HOOKED)
	FreeView   = uint8(KernelFreeFlagFREE_VIEW)

	TransferRead = uint8(KernelTransferFlagTRANSFER_READ)

	BanksShrink = uint8(KernelBanksFlagBANKS_SHRINK)

	CBGlobal = uint8(KernelCbFlagCB_GLOBAL)

	CaughtThrownAgain = uint8(KernelCaughtFlagCAUGHT_THROWN_AGAIN)

	UsesRead       = uint8(KernelUsesFlagUSES_READ)
	UsesTooMany    = uint8(KernelUsesFlagUSES_TOO_MANY)
	UsesUnreadable = uint8(KernelUsesFlagUSES_UNREADABLE)
	UseStatic      = uint32(KernelUsesFlagUSE_STATIC)

	ProgramCBs     = uint8(KernelProgramFlagPROGRAM_CBS)
	ProgramDFBs    = uint8(KernelProgramFlagPROGRAM_DFBS)
	ProgramKernels = uint8(KernelProgramFlagPROGRAM_KERNELS)

	// KernelCompiled stands for kernels that are not loaded yet. The other values are those of
	// event.KernelKind.
	KernelCompiled = uint8(KernelKernelKindKERNEL_COMPILED)
)

// The kinds of static L1 ranges: KernelHeader.StaticKind.
const (
	StaticCircularBuffer = uint8(KernelStaticKindSTATIC_CIRCULAR_BUFFER)
	StaticDataflowBuffer = uint8(KernelStaticKindSTATIC_DATAFLOW_BUFFER)
	StaticScratchpad     = uint8(KernelStaticKindSTATIC_SCRATCHPAD)
)

// The steps of a captured trace: KernelHeader.StaticKind.
const (
	TraceBegin   = uint8(KernelTraceStepTRACE_BEGIN)
	TraceEnd     = uint8(KernelTraceStepTRACE_END)
	TraceReplay  = uint8(KernelTraceStepTRACE_REPLAY)
	TraceRelease = uint8(KernelTraceStepTRACE_RELEASE)
)

// The flags of a process: KernelProcess.Flags.
const (
	ProcessFollow     = uint32(KernelProcessFlagPROCESS_FOLLOW)
	ProcessLate       = uint32(KernelProcessFlagPROCESS_LATE)
	ProcessForgetCode = uint32(KernelProcessFlagPROCESS_FORGET_CODE)
	ProcessNewLeader  = uint32(KernelProcessFlagPROCESS_NEW_LEADER)
)

const (
	// PythonEntry marks KernelPythonCall.Place of a call made by C.
	PythonEntry = uint32(KernelPythonFlagPYTHON_ENTRY)
	// NoField in KernelLayout stands for a missing offset.
	NoField = uint32(KernelLayoutLimitNO_FIELD)
	// NoTable is KernelMapping.Index of code without unwind rows.
	NoTable = uint32(KernelTableIndexNO_TABLE)
	// MaxLibraries is the capacity for libraries.
	MaxLibraries = int(KernelLayoutLimitMAX_LIBRARIES)
	// ProcessesAUser is how many processes of a user are traced.
	ProcessesAUser = int(KernelProcessLimitPROCESSES_A_USER)
	// MaxRules is the capacity for different unwind rules.
	MaxRules = int(KernelRulesLimitMAX_RULES)
	// GibibytesARun is the range that one run of the search for the direct map covers.
	GibibytesARun = uint32(KernelDirectMapSearchGIBIBYTES_A_RUN)
)
