// Command bundle-validate runs every validator of OLM's library over one bundle.
//
// operator-verify has flags for some of them only, and its exit code does not tell what it found.
// Left out is `multiarch`: it asks the registry of each image which platforms there are.
//
// In: the folder of the bundle. Out: a JSON list of {validator, level, message}; the exit code
// is 1 if the folder cannot be read as a bundle.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	validator "github.com/operator-framework/api/pkg/validation/interfaces"
)

// The names are those of `operator-sdk bundle validate --list-optional`, after the three that
// always run.
var validators = []struct {
	name string
	run  validator.Validator
}{
	{"clusterserviceversion", validation.ClusterServiceVersionValidator},
	{"customresourcedefinition", validation.CustomResourceDefinitionValidator},
	{"bundle", validation.BundleValidator},
	{"operatorhub/v2", validation.OperatorHubV2Validator},
	{"standardcapabilities", validation.StandardCapabilitiesValidator},
	{"standardcategories", validation.StandardCategoriesValidator},
	{"object", validation.ObjectValidator},
	{"community", validation.CommunityOperatorValidator},
	{"alpha-deprecated-apis", validation.AlphaDeprecatedAPIsValidator},
	{"good-practices", validation.GoodPracticesValidator},
}

type finding struct {
	Validator string `json:"validator"`
	Level     string `json:"level"`
	Message   string `json:"message"`
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: bundle-validate FOLDER")
	}
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		fail(err.Error())
	}
	findings := []finding{}
	for _, each := range validators {
		for _, result := range each.run.Validate(bundle.ObjectsToValidate()...) {
			for _, found := range append(result.Errors, result.Warnings...) {
				findings = append(findings, finding{each.name, string(found.Level), found.Error()})
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(findings); err != nil {
		fail(err.Error())
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}
