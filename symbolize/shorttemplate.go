package symbolize

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// wrappers are class and function templates through which a program calls or destroys something
// of its own. A compiler often inlines that code into the wrapper; then only the wrapper's
// template argument names it. The values are the name to show and the argument to use, or none.
var wrappers = map[string]struct {
	name string
	arg  int
}{
	"std::_Function_handler":                      {"std::function", 1},
	"std::thread::_State_impl":                    {"std::thread", 0},
	"std::__invoke":                               {"std::invoke", 0},
	"std::__invoke_impl":                          {"std::invoke", 1},
	"std::__invoke_r":                             {"std::invoke", 1},
	"std::invoke":                                 {"std::invoke", 0},
	"std::_Sp_counted_ptr":                        {"std::shared_ptr", 0},
	"std::_Sp_counted_ptr_inplace":                {"std::shared_ptr", 0},
	"std::_Sp_counted_deleter":                    {"std::shared_ptr", 0},
	"std::__future_base::_Task_state":             {"std::packaged_task", 0},
	"nanobind::detail::func_create":               {"nanobind::detail::func_create", 2},
	"std::__do_visit":                             {"std::visit", none},
	"std::__detail::__variant::__gen_vtable_impl": {"std::visit", none},
}

// template prints the name of a template without its arguments, except for templates whose
// bare name is meaningless.
func (s *shortener) template(a *demangle.Template) string {
	name := s.name(a.Name)
	arg := func(i int) demangle.AST {
		// the arguments of a pack count individually
		for _, a := range a.Args {
			if pack, ok := a.(*demangle.ArgumentPack); ok && i < len(pack.Args) && i >= 0 {
				return pack.Args[i]
			}
			if i == 0 {
				return a
			}
			i--
		}
		return nil
	}
	if short, ok := strings.CutPrefix(name, "std::basic_"); ok {
		if b, ok := arg(0).(*demangle.BuiltinType); ok && b.Name == "char" {
			return "std::" + short // std::string, std::ostream
		}
		return name
	}
	switch {
	case name == "ttnn::decorators::registered_operation_t": // until 0.68
		if op := text(arg(0)); op != "" {
			s.callable = op
			return op
		}
	case name == "ttnn::detail::make_method_wrapper":
		if op := pythonName(arg(0)); op != "" {
			return name + "<" + op + ">"
		}
	}
	w, ok := wrappers[name]
	if !ok {
		return name
	}
	if w.arg == none {
		s.callable = w.name
	} else if inner := s.target(arg(w.arg)); inner != "" {
		s.callable = w.name + "<" + inner + ">"
		return s.callable
	}
	return w.name
}

// firstArgument returns the class that is the first argument of a function template or, for a lambda
// in one, of that; "" if there is none.
func (s *shortener) firstArgument(a demangle.AST) string {
	if s.steps--; s.steps < 0 {
		return ""
	}
	switch a := a.(type) {
	case *demangle.Qualified:
		return cmp.Or(s.firstArgument(a.Name), s.firstArgument(a.Scope))
	case *demangle.Template:
		if len(a.Args) == 0 {
			return ""
		}
		arg := a.Args[0]
		if constrained, ok := arg.(*demangle.TemplateParamQualifiedArg); ok {
			arg = constrained.Arg
		}
		if of, ok := arg.(*demangle.Template); ok {
			if inner := s.firstArgument(of); inner != "" { // an adapter of another class
				return inner
			}
		}
		return s.target(arg)
	case *demangle.Typed:
		return s.firstArgument(a.Name)
	case *demangle.MethodWithQualifiers:
		return s.firstArgument(a.Method)
	case *demangle.Constraint:
		return s.firstArgument(a.Name)
	}
	return ""
}

// none stands for no argument.
const none = -1

// target returns the name of the class or lambda that a wrapper wraps; "" for a pointer to
// a function, whose type does not identify the function.
func (s *shortener) target(a demangle.AST) string {
	if s.steps--; s.steps < 0 {
		return ""
	}
	switch a := a.(type) {
	case *demangle.ReferenceType:
		return s.target(a.Base)
	case *demangle.RvalueReferenceType:
		return s.target(a.Base)
	case *demangle.PointerType: // of a shared_ptr with a deleter
		if _, ok := a.Base.(*demangle.FunctionType); !ok {
			return s.target(a.Base)
		}
	case *demangle.TypeWithQualifiers:
		return s.target(a.Base)
	case *demangle.FunctionType: // std::_Bind<F(Args)>
		return s.target(a.Return)
	case *demangle.ArgumentPack:
		if len(a.Args) > 0 {
			return s.target(a.Args[0])
		}
	case *demangle.Template:
		switch s.name(a.Name) {
		case "std::thread::_Invoker", "std::tuple", "std::_Bind", "std::reference_wrapper":
			if len(a.Args) > 0 {
				return s.target(a.Args[0])
			}
		}
		return s.name(a)
	case *demangle.Qualified:
		// a nested binding is shown once
		if name := s.name(a); strings.HasPrefix(name, "nanobind::detail::func_create<") ||
			strings.HasPrefix(name, "ttnn::detail::make_method_wrapper<") {
			return name[strings.IndexByte(name, '<')+1 : strings.LastIndexByte(name, '>')]
		} else if !strings.HasPrefix(name, "nanobind::detail::func_create::") {
			return name
		}
	case *demangle.Name, *demangle.Closure:
		return s.name(a)
	}
	return ""
}

// pythonName returns the Python name of an operation of ttnn, `ttnn.add`, from the type
// unique_wrapper_base<"add", "ttnn."> that represents it.
func pythonName(a demangle.AST) string {
	t, ok := a.(*demangle.Template)
	if !ok || len(t.Args) < 2 {
		return ""
	}
	name, prefix := text(t.Args[0]), text(t.Args[1])
	if name == "" || prefix == "" {
		return ""
	}
	return prefix + name
}

// text returns the string in a template argument: a literal class, such as
// reflect::fixed_string or ttnn::unique_string, around an array of characters; "" for other
// arguments.
func text(a demangle.AST) string {
	for range 4 {
		list, ok := a.(*demangle.InitializerList)
		if !ok {
			return ""
		}
		exprs, ok := list.Exprs.(*demangle.ExprList)
		if !ok || len(exprs.Exprs) == 0 || len(exprs.Exprs) > 128 {
			return ""
		}
		if _, ok := exprs.Exprs[0].(*demangle.Literal); !ok {
			a = exprs.Exprs[0]
			continue
		}
		var b strings.Builder
		for _, e := range exprs.Exprs {
			char, ok := e.(*demangle.Literal)
			if !ok {
				return ""
			}
			n, err := strconv.Atoi(char.Val)
			if err != nil || n < ' ' || n > '~' || char.Neg {
				return ""
			}
			b.WriteByte(byte(n))
		}
		return b.String()
	}
	return ""
}
