package symbolize

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// shortCPP returns a form of a mangled C++ name, made of its tree; "" for another name.
func shortCPP(symbol string, form func(*shortener, demangle.AST) string) string {
	return demangled(symbol, func() (string, error) {
		// Verbose stops the demangler from simplifying the tree. That takes longer the more packs
		// a name has, and the short form shows none of it.
		options := []demangle.Option{demangle.NoParams, demangle.Verbose, demangle.NoABITags}
		tree, err := demangle.ToAST(symbol, options...)
		if err != nil {
			// In constraints, which clang mangles since version 17, the demangler does not
			// count the parameter of an outer template as a substitution candidate. It does
			// count a pointer to it.
			tree, err = demangle.ToAST(outerParameter.ReplaceAllString(symbol, "PT_"), options...)
		}
		if err != nil {
			return "", err
		}
		s := shortener{steps: maxSteps}
		name := form(&s, tree)
		if s.steps < 0 {
			return "", nil
		}
		return name, nil
	})
}

// outerParameter is a parameter of an outer template.
var outerParameter = regexp.MustCompile(`TL\d*__`)

// maxSteps bounds the nodes of a tree that are visited. A tree may be a graph:
// substitutions are not copied.
const maxSteps = 2000

// shortener prints the relevant parts of a name's tree.
type shortener struct {
	steps int
	// callable is the scope whose operator() is left out, because it has no other purpose
	callable string
}

// name prints a node that names something: a function, a class, a namespace.
func (s *shortener) name(a demangle.AST) string {
	if s.steps--; s.steps < 0 {
		return ""
	}
	switch a := a.(type) {
	case *demangle.Name:
		return PlainName(a.Name)
	case *demangle.Qualified:
		return s.qualified(a)
	case *demangle.Template:
		return s.template(a)
	case *demangle.Typed:
		return s.name(a.Name)
	case *demangle.MethodWithQualifiers:
		return s.name(a.Method)
	case *demangle.TypeWithQualifiers:
		return s.name(a.Base)
	case *demangle.Constraint:
		return s.name(a.Name)
	case *demangle.Constructor:
		return lastName(s.name(a.Name))
	case *demangle.Destructor:
		return "~" + lastName(s.name(a.Name))
	case *demangle.Closure:
		return lambda(a.Num + 1)
	case *demangle.UnnamedType:
		return "{unnamed#" + strconv.Itoa(a.Num+1) + "}"
	case *demangle.Operator:
		return operatorName(a.Name)
	case *demangle.Cast:
		return "operator " + printed(a.To)
	case *demangle.Special:
		if strings.Contains(a.Prefix, "thunk to") { // a wrapper around the function
			return s.name(a.Val)
		}
	case *demangle.GlobalCDtor:
		if _, ok := a.Key.(*demangle.Name); ok {
			return "" // the name of a file, not of a function: the symbol says more
		}
	}
	return printed(a)
}

func lambda(n int) string { return "{lambda#" + strconv.Itoa(n) + "}" }

// generated are names without a counterpart in the source: the namespaces that CMake's
// unity builds put around a file (tt-metal's do), clang's names for lambdas in file-local
// functions, and inline namespaces for versions of libraries.
var (
	unityName   = regexp.MustCompile(`^unity_[0-9a-f]{32}$`)
	clangLambda = regexp.MustCompile(`^\$_(\d+)$`)
)

// PlainName returns the usual form of one part of a qualified name; "" for a part that is
// usually omitted.
func PlainName(name string) string {
	switch {
	case name == "(anonymous namespace)":
		return "(anonymous)"
	case name == "__cxx11", name == "__1", unityName.MatchString(name):
		return ""
	}
	if m := clangLambda.FindStringSubmatch(name); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return lambda(n + 1)
		}
	}
	return name
}

func operatorName(name string) string {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "operator"), " ")
	if name != "" && name[0] >= 'a' && name[0] <= 'z' {
		return "operator " + name
	}
	return "operator" + name
}

// lastName returns the part of a qualified name after the last `::`.
func lastName(name string) string {
	if i := strings.LastIndex(name, "::"); i >= 0 && !strings.HasSuffix(name, ">") {
		return name[i+2:]
	}
	return name
}

func (s *shortener) qualified(a *demangle.Qualified) string {
	scope := s.name(a.Scope)
	name := s.name(a.Name)
	switch {
	case scope == "":
		return name
	case name == "":
		return scope
	case strings.Replace(name, "basic_", "", 1) == strings.TrimPrefix(scope, "std::"),
		strings.Replace(name, "~basic_", "", 1) == strings.TrimPrefix(scope, "std::"):
		// std::string, whose class is std::basic_string
		name = strings.Replace(name, "basic_", "", 1)
	}
	switch name {
	case "operator()", "__invoke", "_FUN", "_M_invoke", "_M_run", "__visit_invoke":
		// a lambda's operator(), called directly (GCC and clang name the function without
		// captures differently) or through a wrapper
		if scope == s.callable || strings.HasSuffix(scope, "}") && strings.Contains(scope, "{lambda#") {
			return scope
		}
	}
	if scope == "std::function" && name == "_M_invoke" {
		name = "operator()"
	}
	return scope + "::" + name
}

// printed is a part of a name as the demangler prints it, such as a type, without template arguments.
func printed(a demangle.AST) string {
	return demangle.ASTToString(a, demangle.NoTemplateParams, demangle.NoEnclosingParams, demangle.MaxLength(maxPart))
}
