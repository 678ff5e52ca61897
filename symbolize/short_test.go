package symbolize

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
)

// shortNames are symbols of the libraries of ttnn, 0.60.1 to 0.81.1, unless a comment says
// otherwise.
var shortNames = []struct{ symbol, short string }{
	{
		"_ZN2tt8tt_metal6Buffer6createEPNS0_7IDeviceEmmNS0_10BufferTypeERKNS0_18BufferShardingArgsESt8option" +
			"alIbES8_IN4ttsl10StrongTypeIhNS0_14SubDeviceIdTagEEEE",
		"tt::tt_metal::Buffer::create",
	},
	{"_ZN2tt8tt_metal10BufferImpl13allocate_implERNS0_6BufferE", "tt::tt_metal::BufferImpl::allocate_impl"},
	{
		"_ZN2tt8tt_metal11distributed10MeshBuffer6createERKSt7variantIJNS1_22ReplicatedBufferConfigENS1_19Sh" +
			"ardedBufferConfigEEERKNS1_23DeviceLocalBufferConfigEPNS1_10MeshDeviceESt8optionalImE",
		"tt::tt_metal::distributed::MeshBuffer::create",
	},
	{"_ZN4ttnn6TensorD1Ev", "ttnn::Tensor::~Tensor"},
	{"_ZN2tt8tt_metal6TensorC1ERKS1_", "tt::tt_metal::Tensor::Tensor"},
	{
		"_ZN4ttnn16device_operation6detail23launch_on_single_deviceITkNS0_22DeviceOperationConceptENS_10oper" +
			"ations4pool6Pool2DEEENT_21tensor_return_value_tEN4ttsl10StrongTypeIhNS_10QueueIdTagEEERKNS6_22operat" +
			"ion_attributes_tERKNS6_13tensor_args_tE",
		"ttnn::device_operation::detail::launch_on_single_device",
	},
	{
		"_ZN4ttnn16device_operation6detail6launchITkNS0_22DeviceOperationConceptENS_4prim13SDPAOperationEEEN" +
			"T_21tensor_return_value_tERKNS5_22operation_attributes_tERKNS5_13tensor_args_tE",
		"ttnn::device_operation::detail::launch",
	},
	{
		"_ZN8nanobind6detailL25nb_func_vectorcall_mediumEP7_objectPKS2_mS2_",
		"nanobind::detail::nb_func_vectorcall_medium",
	},
	{"_ZN8nanobind6detailL18nb_type_vectorcallEP7_objectPKS2_mS2_", "nanobind::detail::nb_type_vectorcall"},
	{
		"_ZZN8nanobind6detail11func_createILb1ELb1ESt8functionIFNS_6objectERKNS_4argsERKNS_6kwargsEEES3_JS6_" +
			"S9_EJLm0ELm1EEJEEEP7_objectOT1_PFT2_DpT3_ESt16integer_sequenceImJXspT4_EEEDpRKT5_ENUlPvE_8__invokeES" +
			"R_",
		"nanobind::detail::func_create<std::function>::{lambda#1}",
	},
	{
		"_ZNK4ttnn10decorators22registered_operation_tIXtlN7reflect6v1_2_512fixed_stringIcLm10EEEtlA11_cLc11" +
			"6ELc116ELc110ELc110ELc58ELc58ELc109ELc111ELc118ELc101EEEENS_10operations13data_movement13MoveOperati" +
			"onEE13traced_invokeIJRN2tt8tt_metal6TensorEEEEDaDpOT_",
		"ttnn::move::traced_invoke",
	},
	{"_ZNSt17_Function_handlerIFccEPS0_E9_M_invokeERKSt9_Any_dataOc", "std::function::operator()"},
	{
		"_ZNSt17_Function_handlerIFccEPS0_E10_M_managerERSt9_Any_dataRKS3_St18_Manager_operation",
		"std::function::_M_manager",
	},
	{
		"_ZSt13__invoke_implIN3fmt3v1114basic_appenderIcEEZNKS1_9formatterISt7variantIJjfEEcvE6formatERKS6_R" +
			"NS1_7contextEEUlRKT_E_JRKjEESC_St14__invoke_otherOT0_DpOT1_",
		"std::invoke<fmt::v11::formatter::format::{lambda#1}>",
	},
	{
		"_ZNSt6thread11_State_implINS_8_InvokerISt5tupleIJZN2tf8Executor6_spawnEmEUlvE_EEEEE6_M_runEv",
		"std::thread<tf::Executor::_spawn::{lambda#1}>",
	},
	{
		"_ZNSt23_Sp_counted_ptr_inplaceIbSaIvELN9__gnu_cxx12_Lock_policyE2EE10_M_disposeEv",
		"std::shared_ptr::_M_dispose",
	},
	{
		"_ZNSt19_Sp_counted_deleterIPvN8nanobind6detail10py_deleterESaIvELN9__gnu_cxx12_Lock_policyE2EE10_M_" +
			"disposeEv",
		"std::shared_ptr::_M_dispose",
	},
	{
		"_ZNKSt13__future_base12_Task_setterISt10unique_ptrINS_7_ResultIvEENS_12_Result_base8_DeleterEENSt6t" +
			"hread8_InvokerISt5tupleIJMS7_FvvEPS7_EEEEvEclEv",
		"std::__future_base::_Task_setter::operator()",
	},
	{
		"_ZZN4ttsl10unique_anyILi4096ELi32EEC1IN2tt8tt_metal13program_cache6detail13CachedProgramIN4ttnn10op" +
			"erations4pool6Pool2D9MultiCore18shared_variables_tEEESE_EEOT_ENUlRSt5arrayISt4byteLm4096EEE_8__invok" +
			"eESK_",
		"ttsl::unique_any::unique_any::{lambda#1}",
	},
	{"cos$plt", "cos@plt"},
	{"vsnprintf$pltgot", "vsnprintf@plt"},
	{"_ZN4YAML3Exp3StrB5cxx11Ej", "YAML::Exp::Str"},
	{"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE6appendEmc", "std::string::append"},
	{"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC2ERKS4_", "std::string::string"},
	{"_ZlsRSoRK8bfloat16", "operator<<"},
	{"_ZThn16_N2kj1_9FiberBase4fireEv", "kj::_::FiberBase::fire"},
	{
		"_ZTv0_n24_N4ttnn3ccl24CclOpShardedTensorConfigD0Ev",
		"ttnn::ccl::CclOpShardedTensorConfig::~CclOpShardedTensorConfig",
	},
	{"_ZTWN2tt8tt_metal12GraphTracker4hookE", "TLS wrapper function for tt::tt_metal::GraphTracker::hook"},
	{"_ZTHN2tt8tt_metal12GraphTracker4hookE", "TLS init function for tt::tt_metal::GraphTracker::hook"},
	{"_ZN4ttnn38unity_dc56c68a5a5a5d48aec8efb741feda8812MapperOutputD2Ev", "ttnn::MapperOutput::~MapperOutput"},
	{"_ZN12_GLOBAL__N_110ExpandPlanD2Ev", "(anonymous)::ExpandPlan::~ExpandPlan"},
	{"_ZZN2kj9WaitScope4pollEjENK3$_1clEv", "kj::WaitScope::poll::{lambda#2}"},
	{"_ZZN2tf8Executor6_spawnEmENKUlvE_clEv", "tf::Executor::_spawn::{lambda#1}"},
	{"_ZZN2kj12_GLOBAL__N_18AsyncTee8pullLoopEvENKUlvE0_clEv", "kj::(anonymous)::AsyncTee::pullLoop::{lambda#2}"},
	{
		"_ZNSt5tupleIJRN2tt8tt_metal5ShapeES3_EEaSIS2_S2_Qcl12__assignableITL0__TL0_0_EEEERS4_OSt4pairIT_T0_" +
			"E",
		"std::tuple::operator=",
	},
	{"_ZNSt6vectorIbSaIbEE9push_backEb", "std::vector::push_back"},
	{
		"_ZNSt6vectorIN4ttnn6TensorESaIS1_EE17_M_realloc_insertIJRKS1_EEEvN9__gnu_cxx17__normal_iteratorIPS1" +
			"_S3_EEDpOT_",
		"std::vector::_M_realloc_insert",
	},
	{"_ZSt16__introsort_loopIPilN9__gnu_cxx5__ops15_Iter_less_iterEEvT_S4_T0_T1_", "std::__introsort_loop"},
	{"_Znam$plt", "operator new[]@plt"},
	{"_ZdaPv$plt", "operator delete[]@plt"},
	{"_ZNK5capnp4TypeeqERKS0_", "capnp::Type::operator=="},
	{"_GLOBAL__sub_I_hal.cpp", "_GLOBAL__sub_I_hal.cpp"},
	{"__cxx_global_var_init", "__cxx_global_var_init"},
	{"_ZN2tt3umd4ChipD0Ev", "tt::umd::Chip::~Chip"},
	{
		"_ZN2tt8tt_metal8internal17hash_reload_tableERKSt8optionalINS1_11ReloadTableEE",
		"tt::tt_metal::internal::hash_reload_table",
	},
	{"_ZZN5capnp1_13RpcSystemBase4ImplD1EvENKUlvE_clEv", "capnp::_::RpcSystemBase::Impl::~Impl::{lambda#1}"},
	{
		"_ZZN4ttnn6detail19make_method_wrapperINS_19unique_wrapper_baseIXtlNS_13unique_stringILm6EEEtlSt5arr" +
			"ayIcLm6EEtlA6_cLc99ELc108ELc97ELc109ELc112EEEEEXtlS4_tlS6_tlS7_Lc116ELc116ELc110ELc110ELc46EEEEEEENS" +
			"_6TensorEJRKS9_St8optionalIS9_ESD_RKSC_IN2tt8tt_metal12MemoryConfigEERKSD_EEEDaPFT0_DpT1_EENKUlRKS8_" +
			"SB_SD_SD_SJ_SL_E_clESS_SB_SD_SD_SJ_SL_",
		"ttnn::detail::make_method_wrapper<ttnn.clamp>::{lambda#1}",
	},
	// before 0.69 operations are objects of a class whose template argument is the name
	{"_ZNK4ttnn10decorators22registered_operation_tIXtlN7reflect6v1_2_512fixed_stringIcLm10EEEtlA11_cLc116ELc116ELc110E" +
		"Lc110ELc58ELc58ELc109ELc111ELc118ELc101EEEENS_10operations13data_movement13MoveOperationEEclIJRN2tt8tt_metal6Ten" +
		"sorEEEEDaDpOT_", "ttnn::move"},
	// the demangler counts this one's substitutions differently from clang
	{"_ZZN2tt8tt_metal9operation15DeviceOperationISt6vectorINS0_6TensorESaIS4_EEEC1IRN4ttnn15AllGatherConcatEQntsr3std" +
		"E7same_asINSt5decayITL0__E4typeENS2_IT_EEEEEOSG_ENUlRKSt5arrayISt4byteLm1152EERKS6_RKS3_ISt8optionalIS4_ESaISS" +
		"_EEE0_8__invokeESO_SQ_SW_", "tt::tt_metal::operation::DeviceOperation::DeviceOperation::{lambda#2}"},
	{"_ZNSt8__detail9__variant17__gen_vtable_implINS0_12_Multi_arrayIPFbvEJEEESt16integer_sequenceImJLm5EEEE14__visit_invokeEv", "std::visit"},
	{"_ZNSt14_Function_baseD2Ev", "std::_Function_base::~_Function_base"},
	{"_ZNSsC1EPKcRKSaIcE", "std::string::string"},
	{"_ZNSolsEi", "std::ostream::operator<<"},
	{"_ZN2tt3umd6SemVerltERKS1_", "tt::umd::SemVer::operator<"},
	{"_ZNK3FooptEv", "Foo::operator->"},
	{"_ZN3FoocvbEv", "Foo::operator bool"},
	{"_ZN3FoocvPKcEv", "Foo::operator char const*"},
	{"_ZN3FoocvT_IiEEv", "Foo::operator int"},
	{"_Zli3_kmy", "operator\"\" _km"},
	{"_ZN3FooclEi", "Foo::operator()"},
	{"_ZN4a1b2cE", "_ZN4a1b2cE"},

	// clones of compilers
	{"_ZN2tt8tt_metal6BufferD2Ev.cold", "tt::tt_metal::Buffer::~Buffer"},
	{"_ZN3foo3barEi.part.0.isra.0.cold", "foo::bar"},
	{"_ZN3foo3barEi.constprop.0", "foo::bar"},
	{"_ZL4coldi.localalias", "cold"},
	{"_PyEval_EvalFrameDefault.cold", "_PyEval_EvalFrameDefault"},
	{"list_extend.part.0.isra.12", "list_extend"},
	{"foo.llvm.1234567890", "foo"},
	{"foo.lto_priv.0", "foo"},
	{"foo.c", "foo.c"},
	{".cold", ".cold"},

	// C, Go and others
	{"main", "main"},
	{"_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault"},
	{"memcpy@@GLIBC_2.14", "memcpy"},
	{"_ZNSt9exceptionD1Ev@@GLIBCXX_3.4", "std::exception::~exception"},
	{"runtime.(*mheap).alloc.func1", "runtime.(*mheap).alloc.func1"},
	{"_Z", "_Z"},
	{"_ZN", "_ZN"},
	{"", ""},

	// Rust, new and old
	{"_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"},
	{"_RINvNtCs1234_4core3ptr13drop_in_placelEB2_", "core::ptr::drop_in_place::<i32>"},
	{"_RNvXCs1234_7mycrateNtB2_3FooNtNtCs5678_4core3ops4Drop4drop", "<mycrate::Foo as core::ops::Drop>::drop"},
	{"_ZN4core3ptr13drop_in_place17h0123456789abcdefE", "core::ptr::drop_in_place"},
	{
		"_ZN66_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE.llvm.12",
		"<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop",
	},
}

func TestShortName(t *testing.T) {
	for _, test := range shortNames {
		qt.Check(t, qt.Equals(ShortName(test.symbol), test.short), qt.Commentf("%s", test.symbol))
	}
}

func TestFullName(t *testing.T) {
	for symbol, want := range map[string]string{
		"_ZNSt6vectorIjSaIjEE9push_backEOj": "std::vector<unsigned int, std::allocator<unsigned int> >::push_back(unsigned int&&)",
		"_ZN3foo3barEi.part.0":              "foo::bar(int) [clone .part.0]",
		"_ZNSt9exceptionD1Ev@@GLIBCXX_3.4":  "std::exception::~exception()",
		"main":                              "main",
		"list_extend.part.0":                "list_extend.part.0",
		"":                                  "",
	} {
		qt.Check(t, qt.Equals(FullName(symbol), want), qt.Commentf("%s", symbol))
	}
}

// hostile returns names that are short but expensive to demangle without limits.
func hostile() []string {
	casts := "i"
	for range 40 {
		casts = "N1acvT_I" + casts + "EE"
	}
	return []string{
		"_Z" + casts + "v",
		"_" + strings.Repeat("Z", 8000) + "1fv" + strings.Repeat("E1a", 2000),
		"_Z1f" + strings.Repeat("P", 16000) + "i",
		"_Z1f" + strings.Repeat("r", 16000) + "i",
		"_Z1f" + strings.Repeat("VK", 8000) + "i",
		"_Z1f" + strings.Repeat("P", 1<<20) + "i",
		"_ZN" + strings.Repeat("1a", 8000) + "Ev",
		"_Z1f" + strings.Repeat("I1a", 5000) + strings.Repeat("E", 5000) + "vv",
		"_Z1fI1aIiiE1bIS_S_E1bIS1_S1_E1bIS3_S3_E1bIS5_S5_E1bIS7_S7_E1bIS9_S9_E1bISB_SB_E1bISD_SD_E1bISF_SF_EEvv",
		"_RINvC1a1fTuuETB7_B7_ETBb_Bb_ETBj_Bj_ETBr_Br_ETBz_Bz_ETBH_BH_ETBP_BP_ETBX_BX_ETB15_B15_EE",
		strings.Repeat("<", 10000),
		"_ZN" + strings.Repeat("S_", 5000) + "E",
		"\xff\xfe_Z.cold.cold",
		"_ZN3\xff\xfe\xfdE",
		strings.Repeat("a.cold", 1000),
	}
}

func TestHostileNames(t *testing.T) {
	for _, symbol := range hostile() {
		fuzztest.Ends(fmt.Sprintf("%.60q", symbol), func() { sane(t, symbol) })
	}
}

// sane checks properties of the forms of any name.
func sane(t *testing.T, symbol string) {
	short, full := ShortName(symbol), FullName(symbol)
	qt.Check(t, qt.IsTrue(len(short) <= maxShort+len("@plt")))
	qt.Check(t, qt.IsTrue(len(full) <= 1<<maxFull))
	qt.Check(t, qt.IsTrue(short != "" || symbol == "" || strings.Trim(symbol, "@plt$go") == ""), qt.Commentf("%q", symbol))
}

func FuzzShortName(f *testing.F) {
	for _, test := range shortNames {
		f.Add(test.symbol)
	}
	for _, symbol := range hostile() {
		if len(symbol) < 1000 {
			f.Add(symbol)
		}
	}
	f.Fuzz(func(t *testing.T, symbol string) {
		fuzztest.Bounded(t, len(symbol), 10000, func() { sane(t, symbol) })
	})
}

func BenchmarkShortName(b *testing.B) {
	for b.Loop() {
		for _, test := range shortNames {
			ShortName(test.symbol)
		}
	}
}

func TestTheFirstTemplateArgumentNamesTheOperation(t *testing.T) {
	const launch = "_ZN4ttnn16device_operation6detail6launchITkNS0_22DeviceOperationConcept"
	for symbol, want := range map[string]string{
		launch + "ENS_4prim13SDPAOperationEEENT_21tensor_return_value_tERKNS5_22operation_attributes_tERKNS5_13tensor_args_tE": "ttnn::prim::SDPAOperation",
		// launch_operation_with_adapter<MeshDeviceOperationAdapter<…>>
		"_ZN4ttnn16device_operation6detail29launch_operation_with_adapterITkNS0_22DeviceOperationConceptENS0_26MeshDeviceOperationAdapterINS_4prim13SDPAOperationEEEEEvRKNT_22operation_attributes_tE": "ttnn::prim::SDPAOperation",
		"_ZN4ttnn7softmaxEv": "", "main": "", "": "",
	} {
		qt.Check(t, qt.Equals(TemplateArgument(symbol), want), qt.Commentf("%s", symbol))
	}
}
