// The Pulumi provider for Kubernetes. Its own main package needs files that its build generates.
package main

import "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"

// The Python SDK asks the engine for this version and no other. The Go proxy serves no newer source
// than that in go.mod, whose API is the same for the resources of this project.
const version = "4.34.2"

func main() {
	schema := []byte(`{"name":"kubernetes","version":"` + version + `"}`) // asked for by `pulumi schema` alone
	noTerraformNames := []byte("{}")
	provider.Serve("kubernetes", version, schema, noTerraformNames)
}
